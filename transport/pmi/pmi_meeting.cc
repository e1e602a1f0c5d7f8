#include "transport/pmi/pmi_meeting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "transport/crypto.h"
#include "transport/net/address.h"
#include "transport/pmi/pmi_client.h"

namespace kolo::internal {
namespace {

constexpr std::string_view kPlacePrefix = "pmi:";
constexpr std::string_view kNoMeeting = "-";  // rank 0 could not open one
constexpr int kMostMeetings = 1 << 16;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(b) & 15u];
  }
  return text;
}

std::string key_of(int meeting) { return "kolo-meeting-" + std::to_string(meeting); }

// The number of the first meeting that is not in the store. A job meets again after kolo_shutdown.
Result<int> next_meeting(PmiClient& pmi) {
  for (int meeting = 0; meeting < kMostMeetings; ++meeting) {
    auto value = pmi.get(key_of(meeting));
    if (!value) return value.status();
    if (!value->has_value()) return meeting;
  }
  return resource_error("this job has met " + std::to_string(kMostMeetings) + " times; restart it");
}

// Numeric addresses of this host that others may reach, IPv4 first.
std::vector<std::string> reachable_addresses() {
  std::vector<std::string> v4;
  std::vector<std::string> v6;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        (entry->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      v4.emplace_back(::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      v6.emplace_back(::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text));
    }
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

Status choose_addresses(PmiPlace& place, std::vector<std::string> wanted) {
  place.addresses = std::move(wanted);
  if (!place.addresses.empty()) return Status::ok();
  place.addresses =
      place.host_count == 1 ? std::vector<std::string>{"127.0.0.1"} : reachable_addresses();
  if (!place.addresses.empty()) return Status::ok();
  return invalid_argument(
      "this host has no address that the job's other hosts could reach; bring up an interface, or "
      "set KOLO_ADDRESSES");
}

Status find_place(PmiClient& pmi, int rank, int size, PmiPlace& place) {
  auto mapping = pmi.get("PMI_process_mapping");
  if (!mapping) return mapping.status();
  if (!mapping->has_value()) {
    return Status(StatusCode::kUnsupported,
                  "the MPI launcher does not say which ranks share a host (PMI_process_mapping); "
                  "start the program with kolorun");
  }
  auto hosts = parse_process_mapping(**mapping, size);
  if (!hosts) return hosts.status();
  const auto self = static_cast<std::size_t>(rank);
  const auto begin = hosts->begin();
  const int host = (*hosts)[self];
  place.host_index = host;
  place.host_count = 1 + *std::max_element(begin, hosts->end());
  place.local_size = static_cast<int>(std::count(begin, hosts->end(), host));
  place.local_rank =
      static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(self), host));
  return Status::ok();
}

// Rank 0: opens the meeting and makes it known; where that fails, that is made known. Its number.
Result<int> open_meeting(PmiClient& pmi, int size, Nanos limit, PmiPlace& place) {
  auto meeting = next_meeting(pmi);
  if (!meeting) return meeting.status();
  const Digest id = random_digest();
  place.identity.job = hex(std::span(id).first(8));
  place.identity.secret = hex(random_digest());
  const std::string address = to_text(HostPort{place.addresses.front(), 0});
  auto server = RendezvousServer::start(address, size, place.identity, limit);
  if (!server) {
    static_cast<void>(pmi.put(key_of(*meeting), kNoMeeting).is_ok());
    static_cast<void>(pmi.barrier().is_ok());
    return server.status();
  }
  place.server = *std::move(server);
  place.endpoint = place.server->endpoint();
  std::string text = place.identity.job + ",";
  text += place.identity.secret;
  text += "," + place.endpoint;
  const Status put = pmi.put(key_of(*meeting), text);
  wipe(text);
  KOLO_RETURN_IF_ERROR(put);
  return *meeting;
}

// The others, when it is open.
Result<int> read_meeting(PmiClient& pmi, PmiPlace& place) {
  auto next = next_meeting(pmi);
  if (!next) return next.status();
  auto value = pmi.get(key_of(*next - 1));
  if (!value) return value.status();
  std::string text = value->value_or("");
  if (text == kNoMeeting) {
    return resource_error("rank 0 could not open the job's meeting; its own error says why");
  }
  const std::size_t first = text.find(',');
  const std::size_t second = first == std::string::npos ? first : text.find(',', first + 1);
  if (second == std::string::npos || second - first <= kMinSecretBytes) {
    return invalid_argument(
        "the launcher's store holds no meeting of kolo; do all ranks run the same program, with "
        "the same KOLO_RENDEZVOUS or none?");
  }
  place.identity.job = text.substr(0, first);
  place.identity.secret = text.substr(first + 1, second - first - 1);
  place.endpoint = text.substr(second + 1);
  wipe(text);
  return *next - 1;
}

}  // namespace

std::optional<int> pmi_fd_of(const std::string& rendezvous) {
  const std::string_view text = rendezvous;
  if (!text.starts_with(kPlacePrefix)) return std::nullopt;
  const std::string_view digits = text.substr(kPlacePrefix.size());
  int fd = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), fd);
  if (error != std::errc() || end != digits.data() + digits.size() || fd < 0) return std::nullopt;
  return fd;
}

Result<PmiPlace> meet_by_pmi(int fd, int rank, int size, std::vector<std::string> addresses,
                             Nanos limit) {
  auto pmi = PmiClient::greet(fd, limit);
  if (!pmi) return pmi.status();
  PmiPlace place;
  KOLO_RETURN_IF_ERROR(find_place(*pmi, rank, size, place));
  KOLO_RETURN_IF_ERROR(choose_addresses(place, std::move(addresses)));
  Result<int> meeting = rank == 0 ? open_meeting(*pmi, size, limit, place) : Result<int>(0);
  if (!meeting) return meeting.status();
  KOLO_RETURN_IF_ERROR(pmi->barrier());
  if (rank != 0) meeting = read_meeting(*pmi, place);
  if (!meeting) return meeting.status();
  if (*meeting == 0) KOLO_RETURN_IF_ERROR(pmi->promise_farewell());
  return place;
}

}  // namespace kolo::internal
