// Connections that have passed the handshake: how they are accepted and how they are made.
//
// Everything here runs on the thread that runs the io_context given; callbacks come from there and
// may destroy nothing of this file's but through it. Included by few files (Boost.Asio inside).
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/frames.h"
#include "transport/handshake.h"
#include "transport/net/refusals.h"
#include "transport/net/socket.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

struct ProvedConnection {
  tcp::socket socket;
  HandshakeClaim claim;
  Key session_key;
  FrameDirection outward;  // of what this side sends
};

// One handshake on one open socket, either side. Keeps itself alive until `done` was called.
class ProofSession : public std::enable_shared_from_this<ProofSession> {
 public:
  // A Status of PEER_LOST means that the connection broke; others are the handshake's own.
  using Done = std::function<void(const Status&, std::optional<ProvedConnection>)>;

  ProofSession(tcp::socket socket, Handshake handshake, Done done)
      : socket_(std::move(socket)), handshake_(std::move(handshake)), done_(std::move(done)) {}
  void start() { write(); }
  void cancel();  // `done` follows
  [[nodiscard]] bool introduced() const { return handshake_.introduced(); }
  // Why it was refused, once `done` was called with an error.
  [[nodiscard]] RefusalKind refusal() const;

 private:
  void write();
  void read();
  void read_rest(std::size_t begun);
  void finish(Status status);

  tcp::socket socket_;
  Handshake handshake_;
  Done done_;
  Status failure_;
  std::string out_;
  bool is_other_ = false;  // what came cannot be a handshake
  std::array<std::byte, 128> in_{};
};

// Accepts on one listening descriptor; at most `max_unproved` strangers at a time. The oldest makes
// room for the next, but rather one who has not introduced himself, so that a flood keeps no rank
// out.
class ProvingAcceptor {
 public:
  struct Limits {
    std::size_t max_unproved = 128;
    Nanos introduction = 800ms;  // for the Hello
    Nanos proof = 2s;            // for all of it
  };
  // One line on strangers who were refused; see RefusalLog.
  using Warn = std::function<void(const std::string&)>;
  using MakeHandshake = std::function<Handshake()>;
  using Admitted = std::function<void(ProvedConnection)>;

  ProvingAcceptor(asio::io_context& io, Listening listening, Limits limits, MakeHandshake make,
                  Admitted admitted, Warn warn);
  ~ProvingAcceptor();
  void start() { wait(); }
  [[nodiscard]] const tcp::endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] RefusalCounts refused() const;  // until now; any thread

 private:
  struct Stranger;
  void wait();
  void accept_some();
  void prove(tcp::socket socket);
  void ended(const std::shared_ptr<Stranger>& stranger, const Status& status);
  void limit(const std::shared_ptr<Stranger>& stranger);
  void make_room();
  void note_refusal(const Stranger& stranger, RefusalKind kind, const std::string& reason);
  void say_refusals();

  asio::io_context& io_;
  tcp::endpoint endpoint_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::steady_timer refusals_timer_;
  Limits limits_;
  MakeHandshake make_;
  Admitted admitted_;
  Warn warn_;
  RefusalLog refusals_;
  std::array<std::atomic<std::uint64_t>, kRefusalKinds> refused_{};
  std::list<std::shared_ptr<Stranger>> strangers_;  // oldest first
};

// Makes one proved connection to whichever of `endpoints` answers, trying again until it is
// destroyed with its io_context or has called `done`.
class ProvingConnector : public std::enable_shared_from_this<ProvingConnector> {
 public:
  struct Options {
    bool retry_refused = false;  // the peer may not be listening yet
    Nanos attempt = 3s;          // for the connection alone, not for the proof
  };
  using MakeHandshake = std::function<Handshake()>;
  using Done = std::function<void(const Status&, std::optional<ProvedConnection>)>;

  ProvingConnector(asio::io_context& io, std::vector<tcp::endpoint> endpoints, Options options,
                   MakeHandshake make, Done done);
  void start();
  // What went wrong last, for the text of a timeout; empty when nothing did.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }

 private:
  void connect();
  void connected(const boost::system::error_code& error);
  void proved(const Status& status, std::optional<ProvedConnection> connection);
  void endpoint_failed(Status status, bool final);

  std::vector<tcp::endpoint> endpoints_;
  Options options_;
  MakeHandshake make_;
  Done done_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  std::size_t next_ = 0;   // endpoint to try
  bool all_final_ = true;  // in this pass over the endpoints
  Status first_final_;
  std::string last_error_;
  Nanos pause_ = 10ms;
};

}  // namespace kolo::internal
