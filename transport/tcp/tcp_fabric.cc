#include "transport/tcp/tcp_fabric.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "transport/net/proved.h"
#include "transport/tcp/links.h"
#include "transport/tcp/mesh_agreement.h"
#include "transport/tcp/tcp_channel.h"
#include "transport/tcp/tcp_control.h"

namespace kolo::internal {
namespace {

class Listener final : public TcpListener {
 public:
  explicit Listener(std::vector<Listening> sockets) : sockets_(std::move(sockets)) {
    for (const Listening& socket : sockets_) endpoints_.push_back(to_text(socket.endpoint));
  }
  [[nodiscard]] std::vector<std::string> endpoints() const override { return endpoints_; }
  std::vector<Listening> take() { return std::exchange(sockets_, {}); }

 private:
  std::vector<Listening> sockets_;
  std::vector<std::string> endpoints_;
};

// So many connections are begun at a time, the nearest ranks first: in a job of many ranks, all of
// which do so, nobody has more unproved visitors than he lets stand (ProvingAcceptor::Limits).
constexpr std::size_t kMaxUnderWay = 16;

// Ranks begin at about one time, and those that wait to the end have to tell the others.
constexpr Nanos kReportTime = 500ms;

// The making of one mesh: the higher rank of a pair connects, the lower one accepts. One thread.
class Mesh {
 public:
  Mesh(const JobIdentity& identity, const PeerTable& table, int self, const TcpOptions& options)
      : identity_(identity),
        table_(table),
        self_(self),
        links_(links_of(table, self, options.streams)) {
    made_.resize(links_.size());
    connectors_.resize(links_.size());
  }

  // `watch` may be null.
  Status build(std::vector<Listening> sockets, Nanos limit, MeetingWatch* watch) {
    KOLO_RETURN_IF_ERROR(check_timers(io_));
    heed(watch);
    for (Listening& socket : sockets) {
      acceptors_.push_back(std::make_unique<ProvingAcceptor>(
          io_, std::move(socket), ProvingAcceptor::Limits{},
          [this] { return accepting_handshake(); },
          [this](ProvedConnection connection) { admit(std::move(connection)); },
          [](const std::string& line) { Logger().warning(line); }));
      acceptors_.back()->start();
    }
    for (std::size_t i = links_.size(); i-- > 0;) {
      if (links_[i].peer < self_) to_connect_.push_back(i);
    }
    KOLO_RETURN_IF_ERROR(connect_more());
    if (missing_ > 0) io_.run_until(std::chrono::steady_clock::now() + limit);
    if (!failure_.is_ok()) return failure_;
    return missing_ == 0 ? Status::ok() : too_late(limit);
  }

  // The ranks that control connections reach.
  [[nodiscard]] std::vector<int> linked() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (made_[i] && links_[i].role == HandshakeRole::kControl) ranks.push_back(links_[i].peer);
    }
    return ranks;
  }

  // Of what is there.
  Result<Fabric> take_fabric(const TcpOptions& options, Poller& poller) {
    Fabric fabric;
    fabric.table = table_;
    for (const auto& acceptor : acceptors_) fabric.refused += acceptor->refused();
    fabric.channels.resize(static_cast<std::size_t>(options.streams));
    for (auto& stream : fabric.channels) stream.resize(table_.peers.size());
    auto control = std::make_unique<TcpControl>(poller);
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (!made_[i]) continue;
      ProvedConnection& made = *made_[i];
      const Link& link = links_[i];
      boost::system::error_code error;
      UniqueFd fd(made.socket.release(error));
      if (error) return resource_error("cannot take over a connection: " + error.message());
      if (link.role == HandshakeRole::kControl) {
        KOLO_RETURN_IF_ERROR(control->add(link.peer, name_of(link.peer), std::move(fd),
                                          made.session_key, made.outward));
        continue;
      }
      auto channel =
          TcpChannel::create(std::move(fd), name_of(link.peer), poller, options.checksum);
      if (!channel) return channel.status();
      fabric.channels[link.stream][static_cast<std::size_t>(link.peer)] = std::move(*channel);
    }
    fabric.control = std::move(control);
    return fabric;
  }

 private:
  [[nodiscard]] std::string name_of(int rank) const {
    std::string name = "rank " + std::to_string(rank);
    name += " (host ";
    name += table_.peers[static_cast<std::size_t>(rank)].host;
    name += ")";
    return name;
  }

  [[nodiscard]] HandshakeClaim claim_of(const Link& link) const {
    return {identity_.protocol, link.role, link.stream, self_, link.peer, table_.generation};
  }

  Status connect_more() {
    while (next_to_connect_ < to_connect_.size() && under_way_ < kMaxUnderWay) {
      KOLO_RETURN_IF_ERROR(connect(to_connect_[next_to_connect_++]));
      ++under_way_;
    }
    return Status::ok();
  }

  void give_up(Status why) {
    failure_ = std::move(why);
    io_.stop();
  }

  // A rank that dies before it has come here leaves no connection that could tell.
  void heed(MeetingWatch* watch) {
    if (watch == nullptr) return;
    UniqueFd own(::fcntl(watch->descriptor(), F_DUPFD_CLOEXEC, 0));
    boost::system::error_code refused;
    if (own.is_open()) news_.assign(own.get(), refused);
    if (!own.is_open() || refused) return;  // the limit tells, then
    static_cast<void>(own.release());
    await_news(watch);
  }

  void await_news(MeetingWatch* watch) {
    news_.async_wait(asio::posix::descriptor_base::wait_read,
                     [this, watch](const boost::system::error_code& error) {
                       if (error) return;
                       if (Status lost = watch->lost(); !lost) return give_up(std::move(lost));
                       await_news(watch);
                     });
  }

  Status connect(std::size_t index) {
    const Link& link = links_[index];
    std::vector<tcp::endpoint> endpoints;
    for (const std::string& text : table_.peers[static_cast<std::size_t>(link.peer)].endpoints) {
      Result<std::vector<tcp::endpoint>> found = resolve(text);
      if (!found) return found.status();
      endpoints.insert(endpoints.end(), found->begin(), found->end());
    }
    if (endpoints.empty()) {
      return invalid_argument(name_of(link.peer) +
                              " announced no endpoint; set KOLO_ADDRESSES "
                              "to addresses of its host");
    }
    connectors_[index] = std::make_shared<ProvingConnector>(
        io_, std::move(endpoints), ProvingConnector::Options{},
        [this, index] {
          return Handshake::connector(identity_.job, identity_.secret, claim_of(links_[index]),
                                      random_digest());
        },
        [this, index](const Status& status, std::optional<ProvedConnection> connection) {
          if (!status) {
            return give_up({status.code(), "cannot connect to " + name_of(links_[index].peer) +
                                               " at " + status.text()});
          }
          --under_way_;
          store(index, std::move(*connection));
          if (Status more = connect_more(); !more) give_up(std::move(more));
        });
    connectors_[index]->start();
    return Status::ok();
  }

  Handshake accepting_handshake() {
    return Handshake::acceptor(
        identity_.job, identity_.secret, identity_.protocol,
        [this](const HandshakeClaim& claim) { return judge(claim); }, random_digest());
  }

  [[nodiscard]] Refusal judge(const HandshakeClaim& claim) const {
    if (claim.generation != table_.generation) return Refusal::kWrongGeneration;
    if (claim.to != self_ || claim.from <= self_) return Refusal::kWrongRank;
    if (claim.role == HandshakeRole::kRendezvous) return Refusal::kWrongRole;
    if (find(claim) == links_.size()) {
      return claim.role == HandshakeRole::kData ? Refusal::kWrongStream : Refusal::kWrongRole;
    }
    return Refusal::kNone;
  }

  [[nodiscard]] std::size_t find(const HandshakeClaim& claim) const {
    const auto found =
        std::find(links_.begin(), links_.end(), Link{claim.from, claim.role, claim.stream});
    return static_cast<std::size_t>(found - links_.begin());
  }

  void admit(ProvedConnection connection) {
    const std::size_t index = find(connection.claim);
    store(index, std::move(connection));
  }

  // A second connection for a link means that the peer saw the first one break: it counts.
  void store(std::size_t index, ProvedConnection connection) {
    if (!made_[index]) --missing_;
    made_[index].emplace(std::move(connection));
    if (missing_ == 0) io_.stop();
  }

  // By this rank, or by the peer that has to connect to it.
  [[nodiscard]] std::string what_was_tried(std::size_t index) const {
    const bool connects = connectors_[index] != nullptr;
    if (connects && !connectors_[index]->last_error().empty()) {
      return connectors_[index]->last_error();
    }
    std::string text = connects ? "tried:" : "it was to come to";
    const int to = connects ? links_[index].peer : self_;
    for (const std::string& endpoint : table_.peers[static_cast<std::size_t>(to)].endpoints) {
      text += " " + endpoint;
    }
    return text;
  }

  [[nodiscard]] Status too_late(Nanos limit) const {
    std::string text = name_of(self_) + " has no connection to";
    int last = -1;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const int rank = links_[i].peer;
      if (made_[i] || rank == last) continue;
      text += (last < 0 ? " " : ", ") + name_of(rank);
      text += " [" + what_was_tried(i) + "]";
      last = rank;
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    text += " after " + std::to_string(ms) +
            " ms; see that these ranks live and that their "
            "addresses (KOLO_ADDRESSES) can be reached, or raise KOLO_START_TIMEOUT_MS";
    return timed_out(std::move(text));
  }

  asio::io_context io_{1};
  asio::posix::stream_descriptor news_{io_};
  const JobIdentity& identity_;
  const PeerTable& table_;
  const int self_;
  const std::vector<Link> links_;
  std::vector<std::optional<ProvedConnection>> made_;
  std::vector<std::shared_ptr<ProvingConnector>> connectors_;
  std::vector<std::unique_ptr<ProvingAcceptor>> acceptors_;
  std::vector<std::size_t> to_connect_;  // links, the nearest rank first
  std::size_t next_to_connect_ = 0;
  std::size_t under_way_ = 0;
  std::size_t missing_ = links_.size();
  Status failure_;
};

Status check(const JobIdentity& identity, const PeerTable& table, int self,
             const TcpOptions& options) {
  if (identity.secret.size() < kMinSecretBytes) {
    return invalid_argument("the job's secret has fewer than " + std::to_string(kMinSecretBytes) +
                            " bytes; let kolorun make it, or lengthen KOLO_SECRET");
  }
  KOLO_CHECK(self >= 0 && static_cast<std::size_t>(self) < table.peers.size());
  KOLO_CHECK(options.streams >= 0);
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<TcpListener>> TcpListener::open(const std::vector<std::string>& addresses) {
  if (addresses.empty()) {
    return invalid_argument("no address to listen on; set KOLO_ADDRESSES, for one host 127.0.0.1");
  }
  std::vector<Listening> sockets;
  for (const std::string& address : addresses) {
    Result<Listening> listening = listen_at({address, 0});
    if (!listening) return listening.status();
    sockets.push_back(std::move(*listening));
  }
  return std::unique_ptr<TcpListener>(std::make_unique<Listener>(std::move(sockets)));
}

Result<Fabric> tcp_connect(TcpListener& listener, const JobIdentity& identity,
                           const PeerTable& table, int self, const TcpOptions& options,
                           Poller& poller) {
  KOLO_RETURN_IF_ERROR(check(identity, table, self, options));
  try {
    Mesh mesh(identity, table, self, options);
    const Nanos deadline = SteadyClock().now() + options.start_timeout + kReportTime;
    const Status built = cause_of(
        mesh.build(static_cast<Listener&>(listener).take(), options.start_timeout, options.watch),
        options.watch);
    const std::vector<int> linked = mesh.linked();
    Result<Fabric> fabric = mesh.take_fabric(options, poller);
    if (!fabric) return built.is_ok() ? fabric.status() : built;
    const Status agreed = agree(*fabric->control, linked, table, self, built, poller, deadline);
    KOLO_RETURN_IF_ERROR(built);  // it knows best what it lacks
    KOLO_RETURN_IF_ERROR(cause_of(agreed, options.watch));
    return fabric;
  } catch (const boost::system::system_error& error) {
    return resource_error(std::string("cannot connect to the other ranks: ") + error.what() +
                          "; raise the limit of open files (ulimit -n)");
  }
}

}  // namespace kolo::internal
