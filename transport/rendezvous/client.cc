#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "transport/net/proved.h"
#include "transport/rendezvous/codec.h"
#include "transport/rendezvous/front_end.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

using boost::system::error_code;

// The server names the missing ranks when the start timeout ends: its word is waited for a little
// longer than this side's own limit.
constexpr Nanos kServerGrace = 500ms;
// For a rank that cannot take part to say so, where the server may begin a little later.
constexpr Nanos kDeclineTime = 2s;

class Client final : public RendezvousClient {
 public:
  Client(std::string endpoint, JobIdentity identity, std::string server)
      : endpoint_(std::move(endpoint)),
        identity_(std::move(identity)),
        server_(std::move(server)) {}

  Status join(Meeting::Join join, Nanos limit) {
    KOLO_RETURN_IF_ERROR(check_timers(io_));
    Result<std::vector<tcp::endpoint>> addresses = resolve(endpoint_);
    if (!addresses) return addresses.status();
    claim_ = {identity_.protocol, HandshakeRole::kRendezvous, 0, join.peer.rank, -1, 0};
    join.protocol = identity_.protocol;
    join_bytes_ = encode_join(join);
    size_ = static_cast<std::size_t>(join.size);
    connector_ = std::make_shared<ProvingConnector>(
        io_, std::move(*addresses), ProvingConnector::Options{.retry_refused = true},
        [this] {
          return Handshake::connector(identity_.job, identity_.secret, claim_, random_digest());
        },
        [this](const Status& status, std::optional<ProvedConnection> connection) {
          if (!status) return finish({status.code(), "rendezvous at " + status.text()});
          proved(std::move(*connection));
        });
    connector_->start();
    const auto deadline = std::chrono::steady_clock::now() + limit;
    io_.run_until(deadline);
    if (!result_ && socket_) io_.run_until(deadline + kServerGrace);
    if (!result_) return too_late(join.peer.rank, limit);
    if (result_->is_ok()) keep(second_answer());
    return *result_;
  }

  [[nodiscard]] const PeerTable& table() const override { return table_; }

  [[nodiscard]] int descriptor() override { return socket_->native_handle(); }

  Status lost(Nanos patience) override {
    if (!lost_.is_ok()) return lost_;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    pollfd news{descriptor(), POLLIN, 0};
    if (::poll(&news, 1, static_cast<int>(ms)) > 0) keep(hear());
    return lost_;
  }

  void tell_harmed(const Harm& harm) override {
    if (!socket_ || std::exchange(told_harmed_, true)) return;
    out_.clear();
    sealer_->seal(FrameKind::kMessage, encode_harm(harm), out_);
    // An empty socket takes these few bytes at once; if not, nothing depends on them.
    static_cast<void>(
        ::send(socket_->native_handle(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }

 private:
  void finish(Status status) {
    if (!result_) result_ = std::move(status);
    io_.stop();
  }

  void keep(Status news) {
    if (news.is_ok()) return;
    lost_ = std::move(news);
    ::shutdown(descriptor(), SHUT_RD);  // so that the descriptor is readable from now on
  }

  Status hear() {
    const auto space = reader_->space();
    const ssize_t bytes = ::recv(descriptor(), space.data(), space.size(), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Status::ok();
    if (bytes <= 0) {
      return peer_lost(server_ + " is lost: the rendezvous that it serves at " + endpoint_ +
                       " ended during kolo_init; see its output for the cause");
    }
    reader_->commit(static_cast<std::size_t>(bytes));
    return second_answer();
  }

  // Among what has been read.
  Status second_answer() {
    auto frame = reader_->next();
    if (!frame) return frame.status();
    if (!frame->has_value()) return Status::ok();
    Result<Meeting::Answer> answer = decode_answer(0, (*frame)->body);
    return answer ? answer->status : answer.status();
  }

  [[nodiscard]] Status too_late(int rank, Nanos limit) const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    std::string text = "rank " + std::to_string(rank) + " did not meet the others within " +
                       std::to_string(ms) + " ms at the rendezvous " + endpoint_;
    if (socket_) {
      text += ": it was reached, but not all ranks came";
    } else if (!connector_->last_error().empty()) {
      text += ": it was not reached (" + connector_->last_error() + ")";
    }
    text +=
        "; see that kolorun or rank 0 runs there, that this address can be reached, or raise "
        "KOLO_START_TIMEOUT_MS";
    return timed_out(std::move(text));
  }

  void proved(ProvedConnection connection) {
    socket_.emplace(std::move(connection.socket));
    reader_.emplace(connection.session_key, FrameDirection::kFromAcceptor,
                    RendezvousFrontEnd::kMaxAnswerBytes);
    sealer_.emplace(connection.session_key, FrameDirection::kFromConnector);
    sealer_->seal(FrameKind::kMessage, join_bytes_, out_);
    asio::async_write(*socket_, asio::buffer(out_), [this](const error_code& error, std::size_t) {
      if (error) return gone(error);
      read();
    });
  }

  void gone(const error_code& error) {
    finish(peer_lost("the rendezvous at " + endpoint_ + " went away during the meeting (" +
                     error.message() + "); see why " + server_ + " ended"));
  }

  void read() {
    const auto space = reader_->space();
    socket_->async_read_some(asio::buffer(space.data(), space.size()),
                             [this](const error_code& error, std::size_t bytes) {
                               if (error) return gone(error);
                               reader_->commit(bytes);
                               take_answer();
                             });
  }

  void take_answer() {
    auto frame = reader_->next();
    if (!frame) return finish(frame.status());
    if (!frame->has_value()) return read();
    Result<Meeting::Answer> answer = decode_answer(0, (*frame)->body);
    if (!answer) return finish(answer.status());
    if (answer->status.is_ok() && answer->table.peers.size() != size_) {
      return finish({StatusCode::kInternal, "the rendezvous at " + endpoint_ +
                                                " answered with a table of the wrong size"});
    }
    table_ = std::move(answer->table);
    finish(answer->status);
  }

  asio::io_context io_{1};
  std::string endpoint_;
  JobIdentity identity_;
  std::string server_;
  HandshakeClaim claim_;
  std::string join_bytes_;
  std::size_t size_ = 0;
  std::string out_;
  std::shared_ptr<ProvingConnector> connector_;
  std::optional<tcp::socket> socket_;  // open for as long as this rank is in the meeting
  std::optional<FrameReader> reader_;
  std::optional<FrameSealer> sealer_;
  bool told_harmed_ = false;
  Status lost_;
  std::optional<Status> result_;
  PeerTable table_;
};

}  // namespace

Result<std::unique_ptr<RendezvousClient>> RendezvousClient::join(const std::string& endpoint,
                                                                 const JobIdentity& identity,
                                                                 int size, const PeerInfo& self,
                                                                 Nanos limit,
                                                                 const std::string& server) {
  if (identity.secret.size() < kMinSecretBytes) {
    return invalid_argument("the job's secret has fewer than " + std::to_string(kMinSecretBytes) +
                            " bytes; let kolorun make it, or lengthen KOLO_SECRET");
  }
  try {
    auto client = std::make_unique<Client>(endpoint, identity, server);
    KOLO_RETURN_IF_ERROR(
        client->join({0, identity.protocol, size, self, limit, Status::ok()}, limit));
    return std::unique_ptr<RendezvousClient>(std::move(client));
  } catch (const boost::system::system_error& error) {
    return resource_error(std::string("cannot join the rendezvous: ") + error.what() +
                          "; raise the limit of open files (ulimit -n)");
  }
}

void RendezvousClient::decline(const std::string& endpoint, const JobIdentity& identity, int size,
                               const PeerInfo& self, const Status& why) {
  if (identity.secret.size() < kMinSecretBytes) return;
  try {
    Client client(endpoint, identity, "");
    // The answer says what the others are told.
    static_cast<void>(
        client.join({0, identity.protocol, size, self, kDeclineTime, why}, kDeclineTime));
  } catch (const boost::system::system_error&) {
    // No descriptor, most likely: the others wait for their start timeout.
  }
}

}  // namespace kolo::internal
