// Any text as a host list or a hostfile: ends with hosts within their bounds or an error; what was
// read can be placed, in blocks that cover all ranks. Or as a selector of network interfaces, which
// chooses among what is there, or as a "host:port". The first byte picks the parser.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/addresses.h"
#include "launcher/hosts.h"
#include "launcher/options.h"
#include "transport/net/address.h"

using namespace kolo::internal;

namespace {

void check_placement(const std::vector<Host>& hosts, const PlacementRequest& request) {
  const auto placement = place_ranks(hosts, request);
  if (!placement) return;
  int next = 0;
  for (const Placement::OnHost& here : placement->hosts) {
    if (here.first_rank != next || here.rank_count < 1) std::abort();
    next += here.rank_count;
  }
  if (next != placement->size || next > kMaxRanks) std::abort();
}

void check_selector(std::string_view text) {
  static const std::vector<HostAddress> kPresent = {{"lo", "127.0.0.1", true},
                                                    {"eth0", "10.1.0.7", false},
                                                    {"eth1", "fd00::7", false},
                                                    {"docker0", "172.17.0.1", false}};
  const auto chosen = select_addresses(kPresent, text, "here");
  if (!chosen) {
    if (chosen.status().text().empty()) std::abort();
    return;
  }
  if (chosen->empty()) std::abort();
  for (const std::string& address : *chosen) {
    if (std::ranges::none_of(kPresent, [&](const auto& a) { return a.address == address; })) {
      std::abort();
    }
  }
}

void check_host_port(std::string_view text) {
  const auto parsed = parse_host_port(text);
  if (!parsed) return;
  const auto again = parse_host_port(to_text(*parsed));
  if (!again || *again != *parsed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 2) check_selector(text);
  if (data[0] % 4 == 3) check_host_port(text);
  const auto hosts = data[0] % 2 == 0 ? parse_host_list(text) : parse_hostfile(text, "hosts");
  if (!hosts) {
    if (hosts.status().text().empty()) std::abort();
    return 0;
  }
  for (const Host& host : *hosts) {
    // A name must not be an option of ssh, and slots are bounded.
    if (host.name.empty() || host.name.front() == '-') std::abort();
    if (host.slots < 1 || host.slots > kMaxRanks) std::abort();
  }
  check_placement(*hosts, {});
  check_placement(*hosts, {.rank_count = data[0] + 1});
  check_placement(*hosts, {.ranks_per_host = data[0] / 2 + 1});
  return 0;
}
