#include "transport/net/proved.h"

#include <algorithm>
#include <boost/asio/write.hpp>
#include <utility>

#include "base/check.h"

namespace kolo::internal {

using boost::system::error_code;

// ---- ProofSession

void ProofSession::cancel() {
  error_code ignored;
  socket_.close(ignored);
}

void ProofSession::write() {
  out_ = handshake_.take_output();
  if (out_.empty()) return read();
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (error) return self->finish(peer_lost(error.message()));
                      self->read();
                    });
}

void ProofSession::read() {
  if (!failure_.is_ok() || handshake_.done()) return finish(failure_);
  KOLO_CHECK(handshake_.wanted() > 0 && handshake_.wanted() <= in_.size());
  read_rest(0);
}

// Looks at every piece: who speaks something else is not waited for.
void ProofSession::read_rest(std::size_t begun) {
  const std::size_t wanted = handshake_.wanted();
  socket_.async_read_some(
      asio::buffer(in_.data() + begun, wanted - begun),
      [self = shared_from_this(), begun, wanted](const error_code& error, std::size_t bytes) {
        if (error) return self->finish(peer_lost(error.message()));
        const auto have = std::span(self->in_).first(begun + bytes);
        if (!self->handshake_.can_begin_with(have)) {
          self->is_other_ = true;
          return self->finish({StatusCode::kInternal, "it does not speak kolo's handshake"});
        }
        if (have.size() < wanted) return self->read_rest(have.size());
        self->failure_ = self->handshake_.feed(have);
        self->write();
      });
}

RefusalKind ProofSession::refusal() const {
  if (is_other_) return RefusalKind::kNotKolo;
  switch (handshake_.fault()) {
    case HandshakeFault::kNotKolo: return RefusalKind::kNotKolo;
    case HandshakeFault::kOtherJob: return RefusalKind::kOtherJob;
    case HandshakeFault::kWrongSecret: return RefusalKind::kWrongSecret;
    case HandshakeFault::kRefused: return RefusalKind::kUnwanted;
    case HandshakeFault::kNone: break;
  }
  // An honest peer with another secret goes when it sees this side's proof.
  return introduced() ? RefusalKind::kWrongSecret : RefusalKind::kClosed;
}

void ProofSession::finish(Status status) {
  const Done done = std::exchange(done_, nullptr);
  if (!done) return;
  if (!status.is_ok()) {
    cancel();
    return done(status, std::nullopt);
  }
  const auto outward =
      handshake_.is_connector() ? FrameDirection::kFromConnector : FrameDirection::kFromAcceptor;
  done(Status::ok(),
       ProvedConnection{std::move(socket_), handshake_.peer(), handshake_.session_key(), outward});
}

// ---- ProvingAcceptor

namespace {

constexpr int kAcceptsAtOnce = 64;

std::string address_of(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  return error ? "an unknown address" : peer.address().to_string();
}

}  // namespace

struct ProvingAcceptor::Stranger {
  explicit Stranger(asio::io_context& io) : deadline(io) {}
  std::shared_ptr<ProofSession> session;
  asio::steady_timer deadline;
  std::chrono::steady_clock::time_point came;
  std::string address;
  bool late = false;
};

ProvingAcceptor::ProvingAcceptor(asio::io_context& io, Listening listening, Limits limits,
                                 MakeHandshake make, Admitted admitted, Warn warn)
    : io_(io),
      endpoint_(listening.endpoint),
      acceptor_(io),
      pause_(io),
      refusals_timer_(io),
      limits_(limits),
      make_(std::move(make)),
      admitted_(std::move(admitted)),
      warn_(std::move(warn)) {
  acceptor_.assign(listening.endpoint.protocol(), listening.fd.get());
  (void)listening.fd.release();  // the acceptor's now: what throws before this closes it
}

ProvingAcceptor::~ProvingAcceptor() {
  for (const std::string& line : refusals_.take_last()) warn_(line);
}

void ProvingAcceptor::wait() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
    if (!error) accept_some();
  });
}

// Not all at once: those who are here already must get on.
void ProvingAcceptor::accept_some() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    tcp::socket socket(io_);
    const error_code error = accept_socket(acceptor_.native_handle(), endpoint_.protocol(), socket);
    if (!error) {
      prove(std::move(socket));
      continue;
    }
    if (error == asio::error::would_block || error == asio::error::try_again) break;
    if (error == asio::error::connection_aborted || error == asio::error::interrupted) continue;
    // Out of descriptors, most likely: strangers' deadlines will free some.
    pause_.expires_after(50ms);
    pause_.async_wait([this](const error_code& cancelled) {
      if (!cancelled) wait();
    });
    return;
  }
  wait();
}

void ProvingAcceptor::make_room() {
  auto out = std::find_if(strangers_.begin(), strangers_.end(),
                          [](const auto& stranger) { return !stranger->session->introduced(); });
  if (out == strangers_.end()) out = strangers_.begin();
  const std::shared_ptr<Stranger> stranger = *out;
  strangers_.erase(out);
  note_refusal(*stranger, RefusalKind::kPushedOut, "pushed out by others before its proof");
  stranger->session->cancel();
}

void ProvingAcceptor::prove(tcp::socket socket) {
  if (strangers_.size() >= limits_.max_unproved) make_room();
  const auto stranger = std::make_shared<Stranger>(io_);
  const std::weak_ptr<Stranger> weak = stranger;
  stranger->came = std::chrono::steady_clock::now();
  stranger->address = address_of(socket);
  stranger->session = std::make_shared<ProofSession>(
      std::move(socket), make_(),
      [this, weak](const Status& status, std::optional<ProvedConnection> connection) {
        if (const auto gone = weak.lock()) ended(gone, status);
        if (status.is_ok()) admitted_(std::move(*connection));
      });
  strangers_.push_back(stranger);
  limit(stranger);
  stranger->session->start();
}

void ProvingAcceptor::limit(const std::shared_ptr<Stranger>& stranger) {
  const bool introduced = stranger->session->introduced();
  stranger->deadline.expires_at(stranger->came +
                                (introduced ? limits_.proof : limits_.introduction));
  stranger->deadline.async_wait(
      [this, introduced, weak = std::weak_ptr(stranger)](const error_code& cancelled) {
        const auto late = weak.lock();
        if (cancelled || !late) return;
        if (!introduced && late->session->introduced()) return limit(late);
        late->late = true;
        late->session->cancel();
      });
}

void ProvingAcceptor::ended(const std::shared_ptr<Stranger>& stranger, const Status& status) {
  stranger->deadline.cancel();
  strangers_.remove(stranger);
  if (status.is_ok()) return;
  if (stranger->late) return note_refusal(*stranger, RefusalKind::kLate, "no proof in time");
  note_refusal(*stranger, stranger->session->refusal(), status.text());
}

RefusalCounts ProvingAcceptor::refused() const {
  RefusalCounts counts;
  for (std::size_t kind = 0; kind < kRefusalKinds; ++kind) {
    counts.by_kind[kind] = refused_[kind].load(std::memory_order_relaxed);
  }
  return counts;
}

void ProvingAcceptor::note_refusal(const Stranger& stranger, RefusalKind kind,
                                   const std::string& reason) {
  refused_[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  if (refusals_.empty()) say_refusals();
  refusals_.note(stranger.address, reason, SteadyClock().now());
}

void ProvingAcceptor::say_refusals() {
  refusals_timer_.expires_after(RefusalLog::kFirst);
  refusals_timer_.async_wait([this](const error_code& cancelled) {
    if (cancelled) return;
    for (const std::string& line : refusals_.take(SteadyClock().now())) warn_(line);
    if (!refusals_.empty()) say_refusals();
  });
}

// ---- ProvingConnector

ProvingConnector::ProvingConnector(asio::io_context& io, std::vector<tcp::endpoint> endpoints,
                                   Options options, MakeHandshake make, Done done)
    : endpoints_(std::move(endpoints)),
      options_(options),
      make_(std::move(make)),
      done_(std::move(done)),
      socket_(io),
      timer_(io) {
  KOLO_CHECK(!endpoints_.empty());
}

void ProvingConnector::start() { connect(); }

void ProvingConnector::connect() {
  error_code ignored;
  socket_.close(ignored);
  const tcp::endpoint& endpoint = endpoints_[next_];
  if (const error_code error = open_socket(socket_, endpoint.protocol())) {
    return endpoint_failed(resource_error("cannot open a socket: " + error.message() +
                                          "; raise the limit of open files (ulimit -n)"),
                           true);
  }
  timer_.expires_after(options_.attempt);
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    error_code unused;
    if (!cancelled) self->socket_.close(unused);
  });
  socket_.async_connect(endpoint, [self = shared_from_this()](const error_code& error) {
    self->timer_.cancel();
    self->connected(error);
  });
}

void ProvingConnector::connected(const error_code& error) {
  if (error || !socket_.is_open()) {
    const bool refused = error == asio::error::connection_refused;
    const std::string reason =
        error == asio::error::operation_aborted || !error ? "no answer" : error.message();
    return endpoint_failed(peer_lost(to_text(endpoints_[next_]) + ": " + reason),
                           refused && !options_.retry_refused);
  }
  std::make_shared<ProofSession>(
      std::move(socket_), make_(),
      [self = shared_from_this()](const Status& status, std::optional<ProvedConnection> made) {
        self->proved(status, std::move(made));
      })
      ->start();
}

void ProvingConnector::proved(const Status& status, std::optional<ProvedConnection> connection) {
  if (status.is_ok()) {
    const Done done = std::exchange(done_, nullptr);
    return done(status, std::move(connection));
  }
  // A connection that broke may have been pushed out by strangers: worth another attempt.
  endpoint_failed({status.code(), to_text(endpoints_[next_]) + ": " + status.text()},
                  status.code() != StatusCode::kPeerLost);
}

void ProvingConnector::endpoint_failed(Status status, bool final) {
  last_error_ = status.text();
  if (!final) all_final_ = false;
  if (final && first_final_.is_ok()) first_final_ = std::move(status);
  if (++next_ < endpoints_.size()) return connect();
  if (all_final_) {
    const Done done = std::exchange(done_, nullptr);
    return done(first_final_, std::nullopt);
  }
  next_ = 0;
  all_final_ = true;
  first_final_ = Status::ok();
  timer_.expires_after(pause_);
  pause_ = std::min<Nanos>(2 * pause_, 200ms);
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled) self->connect();
  });
}

}  // namespace kolo::internal
