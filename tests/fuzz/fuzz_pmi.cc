// Any bytes as an answer of an MPI launcher, as its process mapping, or as what a process of its
// own hands to an agent: a value within its bounds or an error with a text. The first byte picks
// the parser, and the size of the job.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/pmi_donors.h"
#include "transport/pmi/pmi_wire.h"

using namespace kolo::internal;

namespace {

void check_line(std::string_view text) {
  const auto line = PmiLine::parse(text);
  if (!line) {
    if (line.status().text().empty()) std::abort();
    return;
  }
  if (!text.substr(std::min(text.find_first_not_of(' '), text.size())).starts_with("cmd=")) {
    std::abort();
  }
  if (const auto number = line->number("vallen_max", 1024); number && *number > 1024) std::abort();
  if (line->is_success() && line->find("rc").value_or("0") != "0") std::abort();
}

void check_mapping(std::string_view text, int size) {
  const auto hosts = parse_process_mapping(text, size);
  if (!hosts) {
    if (hosts.status().text().empty()) std::abort();
    return;
  }
  if (hosts->size() != static_cast<std::size_t>(size)) std::abort();
  int next = 0;
  for (const int host : *hosts) {
    if (host < 0 || host > next) std::abort();  // numbered by first appearance
    next = std::max(next, host + 1);
  }
}

void check_donation(std::string_view bytes, int size) {
  const auto donation = read_donation(bytes, size);
  if (!donation) {
    if (donation.status().text().empty()) std::abort();
    return;
  }
  if (donation->rank < 0 || donation->rank >= size) std::abort();
  for (const std::string& entry : donation->variables) {
    if (!is_valid_entry(entry) || entry.starts_with("PMI_FD=")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    check_line(text), check_donation(text, data[0] + 1);
  else
    check_mapping(text, data[0] * 4);
  return 0;
}
