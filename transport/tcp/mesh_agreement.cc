#include "transport/tcp/mesh_agreement.h"

#include <algorithm>
#include <string>

#include "transport/tcp/links.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kTextBytes = 4096;
constexpr Nanos kLook = 50ms;  // at the clock
constexpr Nanos kHop = 100ms;

// A status as bytes: its code, then its text.
std::string to_bytes(const Status& status) {
  std::string bytes(1, static_cast<char>(status.code()));
  if (!status.is_ok()) bytes += status.text().substr(0, kTextBytes);
  return bytes;
}

Status from_bytes(const std::string& bytes) {
  if (bytes.empty() || bytes.size() > kTextBytes + 1 ||
      static_cast<unsigned char>(bytes[0]) > static_cast<unsigned>(StatusCode::kUnsupported)) {
    return invalid_argument("a malformed word at the end of the meeting; use one version of kolo");
  }
  const auto code = static_cast<StatusCode>(bytes[0]);
  return code == StatusCode::kOk ? Status::ok() : Status{code, bytes.substr(1)};
}

class Agreement {
 public:
  Agreement(ControlLink& link, const PeerTable& table, int self, Poller& poller, Nanos deadline)
      : link_(link), table_(table), self_(self), poller_(poller), deadline_(deadline) {}

  Status run(const std::vector<int>& linked, const Status& own) {
    std::vector<int> below;
    std::copy_if(linked.begin(), linked.end(), std::back_inserter(below),
                 [&](int rank) { return above(rank) == self_; });
    Status verdict = own;
    for (const Status& report : hear(below)) add(report, verdict);
    const bool asks =
        self_ != 0 && std::find(linked.begin(), linked.end(), above(self_)) != linked.end();
    if (asks) {
      static_cast<void>(link_.send(above(self_), to_bytes(verdict)).is_ok());
      deadline_ += kHop;  // those above may have waited just as long
      const Status answer = hear({above(self_)}).front();
      const bool says_more = verdict.is_ok() || answer.code() != StatusCode::kTimedOut;
      if (!answer.is_ok() && says_more) verdict = answer;  // the same for all
    }
    for (const int rank : below) {
      static_cast<void>(link_.send(rank, to_bytes(verdict)).is_ok());  // else it sees its end
    }
    return verdict;
  }

 private:
  [[nodiscard]] int above(int rank) const {
    const int leader = leader_of(table_, rank);
    return leader == rank ? 0 : leader;
  }

  // A death is the cause of whatever else is said.
  static void add(const Status& report, Status& verdict) {
    const bool is_cause =
        report.code() == StatusCode::kPeerLost && verdict.code() != StatusCode::kPeerLost;
    if (verdict.is_ok() || is_cause) verdict = report;
  }

  // The first word of each, in their order. What else comes is for those who listen later.
  std::vector<Status> hear(const std::vector<int>& ranks) {
    std::vector<Status> words(ranks.size());
    std::vector<bool> heard(ranks.size(), false);
    std::vector<ControlEvent> later;
    const SteadyClock clock;
    while (std::find(heard.begin(), heard.end(), false) != heard.end()) {
      if (const auto event = link_.poll()) {
        const auto at = std::find(ranks.begin(), ranks.end(), event->rank) - ranks.begin();
        const auto place = static_cast<std::size_t>(at);
        if (place == ranks.size() || heard[place]) {
          later.push_back(*event);
          continue;
        }
        heard[place] = true;
        words[place] = event->kind == ControlEvent::Kind::kFrame
                           ? from_bytes(event->bytes)
                           : peer_lost(name_of(event->rank) + " is lost: " + event->bytes);
        continue;
      }
      if (clock.now() >= deadline_) break;
      poller_.wait(std::min(kLook, deadline_ - clock.now()));
    }
    while (!later.empty()) {
      link_.put_back(std::move(later.back()));
      later.pop_back();
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (heard[i]) continue;
      words[i] = timed_out(name_of(ranks[i]) +
                           " did not say in time whether it is ready to begin; see that it lives, "
                           "or raise KOLO_START_TIMEOUT_MS");
    }
    return words;
  }

  [[nodiscard]] std::string name_of(int rank) const {
    return "rank " + std::to_string(rank) + " on " +
           table_.peers[static_cast<std::size_t>(rank)].host;
  }

  ControlLink& link_;
  const PeerTable& table_;
  const int self_;
  Poller& poller_;
  Nanos deadline_;
};

}  // namespace

Status agree(ControlLink& link, const std::vector<int>& linked, const PeerTable& table, int self,
             const Status& own, Poller& poller, Nanos deadline) {
  return Agreement(link, table, self, poller, deadline).run(linked, own);
}

}  // namespace kolo::internal
