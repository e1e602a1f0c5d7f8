#include <algorithm>
#include <future>
#include <utility>

#include "transport/rendezvous/codec.h"
#include "transport/rendezvous/front_end.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

// A Meeting behind a front end. The meeting is touched by the front end's thread only.
class Server final : public RendezvousServer, private MeetingBackend {
 public:
  Server(int size, Nanos start_timeout)
      : meeting_(size, {start_timeout, "KOLO_START_TIMEOUT_MS", "rank 0"}) {}

  Status open(const std::string& address, const JobIdentity& identity) {
    auto opened = RendezvousFrontEnd::start(address, identity, *this);
    if (!opened) return opened.status();
    front_end_ = std::move(*opened);
    endpoint_ = front_end_->endpoint();
    ready_.set_value();
    return Status::ok();
  }

  [[nodiscard]] std::string endpoint() const override { return endpoint_; }
  [[nodiscard]] RefusalCounts refused() const override { return front_end_->refused(); }

 private:
  void join(std::uint64_t connection, std::string bytes) override {
    opened_.wait();
    Result<Meeting::Join> join = decode_join(connection, bytes);
    if (!join) {
      answer({{connection, join.status(), {}}});
      return;
    }
    answer(meeting_.join(std::move(*join), clock_.now()));
    update_alarm();
  }

  void left(std::uint64_t connection) override {
    opened_.wait();
    answer(meeting_.lost(connection));
    update_alarm();
  }

  void alarm() override {
    const RefusalCounts refused = front_end_->refused();
    answer(meeting_.expire(
        endpoint_, refused.total() == 0
                       ? ""
                       : std::to_string(refused.total()) + " connections were refused meanwhile, " +
                             std::to_string(refused.of(RefusalKind::kWrongSecret)) +
                             " of them for a wrong secret"));
    update_alarm();
  }

  // The start timeout runs from the first join of a round.
  void update_alarm() {
    const Nanos due = meeting_.next_expiry();
    if (due == due_) return;
    due_ = due;
    front_end_->set_alarm(due == kNever ? kNever : std::max(due - clock_.now(), Nanos(0)));
  }

  void answer(const std::vector<Meeting::Answer>& answers) {
    for (const Meeting::Answer& each : answers) {
      front_end_->deliver(each.connection, encode_answer(each));
    }
  }

  const SteadyClock clock_;
  Meeting meeting_;
  Nanos due_ = kNever;  // of the alarm
  std::string endpoint_;
  // A rank may join before open() has stored the front end.
  std::promise<void> ready_;
  std::shared_future<void> opened_ = ready_.get_future().share();
  std::unique_ptr<RendezvousFrontEnd> front_end_;  // last: its thread ends first
};

}  // namespace

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::start(const std::string& address,
                                                                  int size,
                                                                  const JobIdentity& identity,
                                                                  Nanos start_timeout) {
  if (size < 1 || size > kMaxJobSize) {
    return invalid_argument("a job has 1 to " + std::to_string(kMaxJobSize) + " ranks, not " +
                            std::to_string(size) + "; correct KOLO_SIZE");
  }
  auto server = std::make_unique<Server>(size, start_timeout);
  KOLO_RETURN_IF_ERROR(server->open(address, identity));
  return std::unique_ptr<RendezvousServer>(std::move(server));
}

}  // namespace kolo::internal
