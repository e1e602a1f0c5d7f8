#include "transport/rendezvous/front_end.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "transport/net/proved.h"
#include "transport/rendezvous/codec.h"

namespace kolo::internal {
namespace {

using boost::system::error_code;

// A rank whose proof was accepted: one join comes in, one answer goes out, then it stays open. A
// second message says that the rank was harmed.
class Member : public std::enable_shared_from_this<Member> {
 public:
  Member(std::uint64_t id, ProvedConnection connection, MeetingBackend& backend,
         std::function<void(std::uint64_t)> ended)
      : id_(id),
        socket_(std::move(connection.socket)),
        claim_(connection.claim),
        reader_(connection.session_key, FrameDirection::kFromConnector,
                RendezvousFrontEnd::kMaxJoinBytes),
        sealer_(connection.session_key, FrameDirection::kFromAcceptor),
        backend_(backend),
        ended_(std::move(ended)) {}

  void start() {
    if (claim_.protocol != kProtocolVersion) {
      // Of another version nothing is parsed but what the handshake said.
      Meeting::Join join;
      join.protocol = claim_.protocol;
      join.peer.rank = claim_.from;
      join.peer.host = "unknown: another protocol";
      give_join(encode_join(join));
    }
    read();
  }

  void send(std::string_view bytes) {
    sealer_.seal(FrameKind::kMessage, bytes, queued_);
    if (writing_.empty()) write();
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void give_join(std::string bytes) {
    joined_ = true;
    backend_.join(id_, std::move(bytes));
  }

  void read() {
    const auto space = reader_.space();
    socket_.async_read_some(asio::buffer(space.data(), space.size()),
                            [self = shared_from_this()](const error_code& error, std::size_t n) {
                              if (error) return self->end();
                              self->reader_.commit(n);
                              self->take_frames();
                            });
  }

  void take_frames() {
    while (true) {
      auto frame = reader_.next();
      if (!frame) return end();
      if (!frame->has_value()) return read();
      const bool is_message = (*frame)->kind == FrameKind::kMessage;
      if (is_message && !joined_) {
        give_join(std::string((*frame)->body));
      } else if (is_message && !std::exchange(harmed_, true)) {
        backend_.harmed(id_, std::string((*frame)->body));
      } else if (claim_.protocol == kProtocolVersion) {
        return end();
      }
    }
  }

  void write() {
    writing_ = std::exchange(queued_, {});
    if (writing_.empty()) return;
    asio::async_write(socket_, asio::buffer(writing_),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        self->writing_.clear();
                        if (!error) self->write();  // else the reader sees the end, too
                      });
  }

  void end() {
    close();
    if (std::exchange(ended_once_, true)) return;
    if (joined_) backend_.left(id_);
    ended_(id_);
  }

  const std::uint64_t id_;
  tcp::socket socket_;
  HandshakeClaim claim_;
  FrameReader reader_;
  FrameSealer sealer_;
  MeetingBackend& backend_;
  std::function<void(std::uint64_t)> ended_;
  std::string queued_;
  std::string writing_;
  bool joined_ = false;
  bool harmed_ = false;
  bool ended_once_ = false;
};

class FrontEnd final : public RendezvousFrontEnd {
 public:
  FrontEnd(Listening listening, JobIdentity identity, MeetingBackend& backend)
      : identity_(std::move(identity)),
        backend_(backend),
        acceptor_(
            io_, std::move(listening), ProvingAcceptor::Limits{},
            [this] { return make_handshake(); },
            [this](ProvedConnection connection) { admit(std::move(connection)); },
            [this](const std::string& line) { backend_.warn(line); }),
        alarm_(io_),
        bell_(io_),
        endpoint_(to_text(acceptor_.endpoint())) {}

  Status begin() {
    KOLO_RETURN_IF_ERROR(check_timers(io_));
    KOLO_RETURN_IF_ERROR(open_bell());
    acceptor_.start();
    thread_ = std::thread([this] { serve(); });
    return Status::ok();
  }

  ~FrontEnd() override {
    if (!thread_.joinable()) return;
    // After the answers that were delivered before: nobody is left without the word of a server
    // that ends with its own rank.
    hand_over([this] { io_.stop(); });
    thread_.join();
  }

  [[nodiscard]] std::string endpoint() const override { return endpoint_; }
  [[nodiscard]] RefusalCounts refused() const override { return acceptor_.refused(); }

  void deliver(std::uint64_t connection, std::string bytes) override {
    hand_over([this, connection, sent = std::move(bytes)] {
      const auto found = members_.find(connection);
      if (found != members_.end()) found->second->send(sent);
    });
  }

  void set_alarm(Nanos delay) override {
    hand_over([this, delay] {
      alarm_.cancel();
      if (delay == kNever) return;
      alarm_.expires_after(delay);
      alarm_.async_wait([this](const error_code& cancelled) {
        if (!cancelled) backend_.alarm();
      });
    });
  }

 private:
  // Asio does not say when the system has refused it what it wakes its thread with.
  Status open_bell() {
    UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    error_code error;
    if (bell.is_open()) bell_.assign(bell.get(), error);
    if (!bell.is_open() || error) {
      return resource_error(
          "cannot serve the rendezvous: no event for its thread (eventfd); raise the limit of open "
          "files (ulimit -n)");
    }
    static_cast<void>(bell.release());
    await_bell();
    return Status::ok();
  }

  void await_bell() {
    bell_.async_wait(asio::posix::descriptor_base::wait_read, [this](const error_code& error) {
      if (error) return;
      std::uint64_t rings = 0;
      [[maybe_unused]] const auto read = ::read(bell_.native_handle(), &rings, sizeof rings);
      await_bell();
    });
  }

  // To the thread that serves. From any.
  template <typename Task>
  void hand_over(Task&& task) {
    asio::post(io_, std::forward<Task>(task));
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell_.native_handle(), &one, sizeof one);
  }

  void serve() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {
        // What went wrong with one connection must not end the service for the others.
      }
    }
  }

  Handshake make_handshake() {
    // Every protocol number passes here: the meeting tells all ranks of a difference.
    return Handshake::acceptor(
        identity_.job, identity_.secret, 0,
        [](const HandshakeClaim& claim) {
          return claim.role == HandshakeRole::kRendezvous ? Refusal::kNone : Refusal::kWrongRole;
        },
        random_digest());
  }

  void admit(ProvedConnection connection) {
    const std::uint64_t id = next_id_++;
    const auto member = std::make_shared<Member>(
        id, std::move(connection), backend_, [this](std::uint64_t gone) { members_.erase(gone); });
    members_.emplace(id, member);
    member->start();
  }

  JobIdentity identity_;
  MeetingBackend& backend_;
  asio::io_context io_{1};
  ProvingAcceptor acceptor_;
  asio::steady_timer alarm_;
  asio::posix::stream_descriptor bell_;
  std::string endpoint_;
  std::map<std::uint64_t, std::shared_ptr<Member>> members_;
  std::uint64_t next_id_ = 1;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<RendezvousFrontEnd>> RendezvousFrontEnd::start(const std::string& address,
                                                                      const JobIdentity& identity,
                                                                      MeetingBackend& backend) {
  if (identity.secret.size() < kMinSecretBytes) {
    return invalid_argument("the job's secret has fewer than " + std::to_string(kMinSecretBytes) +
                            " bytes; let kolorun make it, or lengthen KOLO_SECRET");
  }
  Result<HostPort> parsed = parse_host_port(address);
  if (!parsed) return parsed.status();
  Result<Listening> listening = listen_at(*parsed);
  if (!listening) return listening.status();
  try {
    auto front_end = std::make_unique<FrontEnd>(std::move(*listening), identity, backend);
    KOLO_RETURN_IF_ERROR(front_end->begin());
    return std::unique_ptr<RendezvousFrontEnd>(std::move(front_end));
  } catch (const std::exception& error) {  // Boost.Asio's, or the thread's
    return resource_error(std::string("cannot serve the rendezvous: ") + error.what() +
                          "; raise the limits of open files and processes (ulimit -n, -u)");
  }
}

}  // namespace kolo::internal
