#include "launcher/hosts.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "launcher/options.h"

namespace kolo::internal {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

Status parse_slots(std::string_view text, std::string_view entry, int& slots) {
  long long number = 0;
  if (!parse_number(text, 1, kMaxRanks, number)) {
    return invalid_argument("host " + quoted(entry) + ": slots are a number from 1 to " +
                            std::to_string(kMaxRanks) + ", not " + quoted(text));
  }
  slots = static_cast<int>(number);
  return Status::ok();
}

Status check_name(std::string_view name, std::string_view entry) {
  if (name.empty()) return invalid_argument("host " + quoted(entry) + " has no name");
  // A name that starts with '-' would be taken for an option by ssh.
  const bool strange = name.front() == '-' || std::any_of(name.begin(), name.end(), [](char c) {
                         return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '"' ||
                                c == '\'' || c == '\\' || c == ';' || c == '&' || c == '|' ||
                                c == '$' || c == '`' || c == '/';
                       });
  if (strange) return invalid_argument(quoted(entry) + " is not the name of a host");
  return Status::ok();
}

// "name", "name:slots", "[address]", "[address]:slots", each with "user@" before it.
Result<Host> parse_entry(std::string_view entry) {
  Host host;
  const std::size_t bracket = entry.find('[');
  std::string_view slots;
  bool has_slots = false;
  if (bracket != std::string_view::npos) {
    const std::size_t close = entry.find(']', bracket);
    if (close == std::string_view::npos) {
      return invalid_argument("host " + quoted(entry) + ": the bracket [ is not closed");
    }
    const std::string_view user = entry.substr(0, bracket);
    if (!user.empty() && user.back() != '@') {
      return invalid_argument("host " + quoted(entry) + ": only user@ may stand before [");
    }
    host.name = std::string(user) + std::string(entry.substr(bracket + 1, close - bracket - 1));
    const std::string_view rest = entry.substr(close + 1);
    has_slots = !rest.empty();
    if (has_slots && rest.front() != ':') {
      return invalid_argument("host " + quoted(entry) + ": only :slots may follow ]");
    }
    if (has_slots) slots = rest.substr(1);
  } else {
    const std::size_t colon = entry.find(':');
    if (colon != std::string_view::npos && entry.find(':', colon + 1) != std::string_view::npos) {
      return invalid_argument("host " + quoted(entry) +
                              " is ambiguous; write an IPv6 address in brackets: [fd00::1]:2");
    }
    host.name = std::string(entry.substr(0, colon));
    has_slots = colon != std::string_view::npos;
    if (has_slots) slots = entry.substr(colon + 1);
  }
  KOLO_RETURN_IF_ERROR(check_name(host.name, entry));
  if (has_slots) KOLO_RETURN_IF_ERROR(parse_slots(slots, entry, host.slots));
  return host;
}

// In the order of first appearance; a cluster's list may have many thousands.
class HostList {
 public:
  Status add(Host host) {
    const auto [place, is_new] = places_.emplace(host.name, hosts_.size());
    if (is_new) {
      hosts_.push_back(std::move(host));
      return Status::ok();
    }
    Host& same = hosts_[place->second];
    if (same.slots + host.slots > kMaxRanks) {
      return invalid_argument("host " + quoted(host.name) + " has more than " +
                              std::to_string(kMaxRanks) + " slots");
    }
    same.slots += host.slots;
    return Status::ok();
  }
  std::vector<Host> take() { return std::move(hosts_); }

 private:
  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t> places_;  // by name
};

Result<Host> parse_line(std::string_view line) {
  const std::size_t blank = line.find_first_of(kBlanks);
  auto host = parse_entry(line.substr(0, blank));
  if (!host || blank == std::string_view::npos) return host;
  // Words after the name: slots=N counts; other key=value words of other launchers are let pass.
  std::string_view rest = trim(line.substr(blank));
  while (!rest.empty()) {
    const std::size_t end = rest.find_first_of(kBlanks);
    const std::string_view word = rest.substr(0, end);
    constexpr std::string_view kSlots = "slots=";
    if (word.starts_with(kSlots)) {
      KOLO_RETURN_IF_ERROR(parse_slots(word.substr(kSlots.size()), line, host->slots));
    } else if (word.find('=') == std::string_view::npos) {
      return invalid_argument("after the host comes slots=N, not " + quoted(word));
    }
    rest = end == std::string_view::npos ? std::string_view{} : trim(rest.substr(end));
  }
  return host;
}

std::string describe_slots(const std::vector<Host>& hosts) {
  std::string text;
  for (std::size_t i = 0; i < hosts.size() && i < 8; ++i) {
    text += (i == 0 ? "" : ", ") + hosts[i].name + ":" + std::to_string(hosts[i].slots);
  }
  return hosts.size() > 8 ? text + ", ..." : text;
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  HostList hosts;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = trim(text.substr(0, comma));
    if (entry.empty()) {
      return invalid_argument("the list of hosts has an empty entry; write host:slots,host:slots");
    }
    auto host = parse_entry(entry);
    if (!host) return host.status();
    KOLO_RETURN_IF_ERROR(hosts.add(*std::move(host)));
    if (comma == std::string_view::npos) return hosts.take();
    text = text.substr(comma + 1);
  }
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view file) {
  HostList list;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::size_t newline = text.find('\n');
    const std::string_view whole = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view{} : text.substr(newline + 1);
    const std::string_view line = trim(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    auto host = parse_line(line);
    const Status status = host ? list.add(*std::move(host)) : host.status();
    if (!status) {
      return invalid_argument(std::string(file) + ":" + std::to_string(line_number) + ": " +
                              status.text());
    }
  }
  std::vector<Host> hosts = list.take();
  if (hosts.empty()) return invalid_argument(quoted(file) + " names no host");
  return hosts;
}

Result<Placement> place_ranks(std::vector<Host> hosts, const PlacementRequest& request) {
  const bool hosts_given = !hosts.empty();
  if (!hosts_given) {
    const int wanted = request.rank_count > 0 ? request.rank_count : request.local_cores;
    if (request.rank_count == 0 && !request.all_slots && request.ranks_per_host == 0) {
      return invalid_argument("how many ranks? Say -np N, or -np auto for one per core");
    }
    hosts.push_back({"localhost", wanted});
  }
  long long slots = 0;
  for (Host& host : hosts) {
    if (request.ranks_per_host > 0) host.slots = request.ranks_per_host;
    slots += host.slots;
  }
  const long long count = request.rank_count > 0 ? request.rank_count : slots;
  if (count > kMaxRanks) {
    return invalid_argument("the hosts have " + std::to_string(count) + " slots; at most " +
                            std::to_string(kMaxRanks) + " ranks can run: say -np N");
  }
  if (count > slots) {
    return invalid_argument("-np " + std::to_string(count) + " needs more than the " +
                            std::to_string(slots) + (slots == 1 ? " slot of " : " slots of ") +
                            describe_slots(hosts) + "; give the hosts more slots (" +
                            hosts.front().name + ":N) or a larger -ppn");
  }
  Placement placement;
  placement.size = static_cast<int>(count);
  int next = 0;
  for (const Host& host : hosts) {
    const int here = std::min(host.slots, placement.size - next);
    if (here == 0) break;
    placement.hosts.push_back({host, next, here});
    next += here;
  }
  return placement;
}

bool names_this_machine(std::string_view name, std::string_view own_name) {
  return name == "localhost" || name == "::1" || name.starts_with("127.") ||
         (!own_name.empty() && name == own_name);
}

}  // namespace kolo::internal
