#include "transport/inproc/inproc_control.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "transport/inproc/wake_table.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxQueuedBytes = std::size_t{256} << 20;  // of one inbox

// What has come for one rank, and which peers will send no more.
struct Inbox {
  std::mutex mutex;
  std::deque<ControlEvent> events;
  std::size_t queued_bytes = 0;
  std::vector<bool> ended;  // by peer; at first true for those without a link
  std::vector<bool> lost;   // by peer; those of `ended` that took no leave
};

}  // namespace

struct InprocControlNetwork::Shared {
  explicit Shared(const std::vector<int>& hosts)
      : size(static_cast<int>(hosts.size())),
        host_index(hosts),
        wakes(size),
        inboxes(hosts.size()) {
    for (int rank = 0; rank < size; ++rank) {
      Inbox& inbox = inboxes[static_cast<std::size_t>(rank)];
      for (int peer = 0; peer < size; ++peer) inbox.ended.push_back(!linked(rank, peer));
      inbox.lost.resize(hosts.size());
    }
  }

  [[nodiscard]] int leader(int rank) const {
    const auto first =
        std::find(host_index.begin(), host_index.end(), host_index[static_cast<std::size_t>(rank)]);
    return static_cast<int>(first - host_index.begin());
  }
  [[nodiscard]] bool linked(int a, int b) const {
    if (a == b) return false;
    if (leader(a) == b || leader(b) == a) return true;
    return (a == 0 || b == 0) && leader(a) == a && leader(b) == b;
  }

  // `from` sends no more to `to`; the first word counts.
  void end(int from, int to, ControlEvent::Kind kind, const std::string& text) {
    {
      Inbox& inbox = inboxes[static_cast<std::size_t>(to)];
      const std::lock_guard lock(inbox.mutex);
      if (inbox.ended[static_cast<std::size_t>(from)]) return;
      inbox.ended[static_cast<std::size_t>(from)] = true;
      inbox.lost[static_cast<std::size_t>(from)] = kind == ControlEvent::Kind::kLost;
      inbox.events.push_back({.kind = kind, .rank = from, .bytes = text});
    }
    wakes.wake(to);
  }

  const int size;
  const std::vector<int> host_index;
  WakeTable wakes;
  std::vector<Inbox> inboxes;
};

namespace {

class InprocControlLink final : public ControlLink {
 public:
  InprocControlLink(std::shared_ptr<InprocControlNetwork::Shared> shared, int self)
      : shared_(std::move(shared)), self_(self) {}

  ~InprocControlLink() override {
    end_all(ControlEvent::Kind::kLost, "the link was closed without taking leave");
  }

  Status send(int rank, std::string_view frame) override {
    if (frame.size() > kMaxFrameBytes) {
      return resource_error("a control frame of " + std::to_string(frame.size()) +
                            " bytes for rank " + std::to_string(rank) + " is over the limit of " +
                            std::to_string(kMaxFrameBytes));
    }
    if (rank < 0 || rank >= shared_->size || !shared_->linked(self_, rank) || finishing_) {
      return peer_lost("rank " + std::to_string(self_) + " has no control link to rank " +
                       std::to_string(rank));
    }
    if (lost(rank)) {
      return peer_lost("the control link to rank " + std::to_string(rank) + " is lost");
    }
    {
      Inbox& inbox = shared_->inboxes[static_cast<std::size_t>(rank)];
      const std::lock_guard lock(inbox.mutex);
      if (inbox.ended[static_cast<std::size_t>(self_)]) {  // this rank was killed
        return peer_lost("the control link to rank " + std::to_string(rank) + " is lost");
      }
      if (inbox.queued_bytes + frame.size() > kMaxQueuedBytes) {
        return resource_error("more than " + std::to_string(kMaxQueuedBytes) +
                              " bytes of control frames wait for rank " + std::to_string(rank) +
                              "; it does not read them");
      }
      inbox.queued_bytes += frame.size();
      inbox.events.push_back(
          {.kind = ControlEvent::Kind::kFrame, .rank = self_, .bytes = std::string(frame)});
    }
    ++counters_.frames_sent;
    counters_.bytes_sent += frame.size();
    shared_->wakes.wake(rank);
    return Status::ok();
  }

  std::optional<ControlEvent> poll() override {
    Inbox& inbox = shared_->inboxes[static_cast<std::size_t>(self_)];
    const std::lock_guard lock(inbox.mutex);
    if (inbox.events.empty()) return std::nullopt;
    ControlEvent event = std::move(inbox.events.front());
    inbox.events.pop_front();
    if (event.kind == ControlEvent::Kind::kFrame) {
      inbox.queued_bytes -= event.bytes.size();
      ++counters_.frames_received;
    }
    return event;
  }

  void put_back(ControlEvent event) override {
    Inbox& inbox = shared_->inboxes[static_cast<std::size_t>(self_)];
    const std::lock_guard lock(inbox.mutex);
    if (event.kind == ControlEvent::Kind::kFrame) {
      inbox.queued_bytes += event.bytes.size();
      --counters_.frames_received;
    }
    inbox.events.push_front(std::move(event));
  }

  void finish() override {
    finishing_ = true;
    end_all(ControlEvent::Kind::kClosed, "");
  }

  [[nodiscard]] bool finished() const override {
    Inbox& inbox = shared_->inboxes[static_cast<std::size_t>(self_)];
    const std::lock_guard lock(inbox.mutex);
    return finishing_ &&
           std::find(inbox.ended.begin(), inbox.ended.end(), false) == inbox.ended.end();
  }

  [[nodiscard]] const ControlCounters& counters() const override { return counters_; }

 private:
  bool lost(int peer) {
    Inbox& inbox = shared_->inboxes[static_cast<std::size_t>(self_)];
    const std::lock_guard lock(inbox.mutex);
    return inbox.lost[static_cast<std::size_t>(peer)];
  }

  void end_all(ControlEvent::Kind kind, const std::string& text) {
    for (int peer = 0; peer < shared_->size; ++peer) {
      if (peer != self_) shared_->end(self_, peer, kind, text);
    }
  }

  const std::shared_ptr<InprocControlNetwork::Shared> shared_;
  const int self_;
  bool finishing_ = false;
  ControlCounters counters_;
};

}  // namespace

InprocControlNetwork::InprocControlNetwork(const std::vector<int>& host_index)
    : shared_(std::make_shared<Shared>(host_index)) {}

InprocControlNetwork::~InprocControlNetwork() = default;

std::unique_ptr<ControlLink> InprocControlNetwork::link(int rank) {
  KOLO_CHECK(rank >= 0 && rank < shared_->size);
  return std::make_unique<InprocControlLink>(shared_, rank);
}

void InprocControlNetwork::set_wake(int rank, std::function<void()> wake) {
  shared_->wakes.set(rank, std::move(wake));
}

void InprocControlNetwork::kill(int rank, const std::string& reason) {
  for (int peer = 0; peer < shared_->size; ++peer) {
    if (peer == rank) continue;
    shared_->end(rank, peer, ControlEvent::Kind::kLost, reason);
    shared_->end(peer, rank, ControlEvent::Kind::kLost, reason);
  }
}

}  // namespace kolo::internal
