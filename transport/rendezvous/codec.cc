#include "transport/rendezvous/codec.h"

#include <utility>

#include "rendezvous.pb.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxSettingsBytes = std::size_t{64} << 10;
constexpr int kMaxEndpoints = 64;
constexpr std::size_t kMaxEndpointBytes = 300;
constexpr std::uint64_t kMaxLimitMs = std::uint64_t{366} * 24 * 3600 * 1000;

void to_message(const PeerInfo& peer, rendezvous::Peer& message) {
  message.set_rank(peer.rank);
  message.set_host_index(peer.host_index);
  message.set_local_rank(peer.local_rank);
  message.set_host(peer.host);
  message.set_pid(peer.pid);
  for (const std::string& endpoint : peer.endpoints) message.add_endpoints(endpoint);
  message.set_settings(peer.settings);
}

bool is_status(int number) {
  return number >= 0 && number < static_cast<int>(StatusCode::kInProgress);
}

Status malformed(const std::string& what) {
  return invalid_argument("malformed rendezvous message: " + what);
}

Result<PeerInfo> from_message(const rendezvous::Peer& message) {
  if (message.host().size() > kMaxTextBytes) return malformed("host name too long");
  if (message.settings().size() > kMaxSettingsBytes) return malformed("settings too long");
  if (message.endpoints_size() > kMaxEndpoints) return malformed("too many endpoints");
  PeerInfo peer;
  peer.rank = message.rank();
  peer.host_index = message.host_index();
  peer.local_rank = message.local_rank();
  peer.host = message.host();
  peer.pid = message.pid();
  for (const std::string& endpoint : message.endpoints()) {
    if (endpoint.size() > kMaxEndpointBytes) return malformed("endpoint too long");
    peer.endpoints.push_back(endpoint);
  }
  peer.settings = message.settings();
  return peer;
}

bool parse(google::protobuf::MessageLite& message, std::string_view bytes) {
  return bytes.size() <= std::size_t{1} << 30 &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string encode_join(const Meeting::Join& join) {
  rendezvous::Join message;
  message.set_protocol(join.protocol);
  message.set_size(join.size);
  if (join.limit != kNever) {
    message.set_limit_ms(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(join.limit).count()));
  }
  message.set_obstacle(static_cast<std::int32_t>(join.obstacle.code()));
  message.set_obstacle_text(join.obstacle.text().substr(0, kMaxTextBytes));
  to_message(join.peer, *message.mutable_peer());
  return message.SerializeAsString();
}

Result<Meeting::Join> decode_join(std::uint64_t connection, std::string_view bytes) {
  rendezvous::Join message;
  if (!parse(message, bytes)) return malformed("not a join");
  Result<PeerInfo> peer = from_message(message.peer());
  if (!peer) return peer.status();
  if (!is_status(message.obstacle())) return malformed("unknown status");
  if (message.obstacle_text().size() > kMaxTextBytes) return malformed("text too long");
  if (message.limit_ms() > kMaxLimitMs) return malformed("limit");
  Meeting::Join join{connection, message.protocol(), message.size(), std::move(*peer), kNever, {}};
  if (message.limit_ms() > 0) join.limit = std::chrono::milliseconds(message.limit_ms());
  if (message.obstacle() != 0) {
    join.obstacle = Status(static_cast<StatusCode>(message.obstacle()), message.obstacle_text());
  }
  return join;
}

std::string encode_harm(const Harm& harm) {
  rendezvous::Harm message;
  if (harm.lost_rank >= 0) message.set_lost_rank(harm.lost_rank);
  message.set_why(harm.why.substr(0, kMaxTextBytes));
  return message.SerializeAsString();
}

Result<Harm> decode_harm(std::string_view bytes) {
  rendezvous::Harm message;
  if (!parse(message, bytes)) return malformed("not a harm");
  if (message.why().size() > kMaxTextBytes) return malformed("text of a harm too long");
  Harm harm{-1, message.why()};
  if (message.has_lost_rank()) {
    harm.lost_rank = message.lost_rank();
    if (harm.lost_rank < 0 || harm.lost_rank >= kMaxJobSize) return malformed("lost rank");
  }
  return harm;
}

std::string encode_answer(const Meeting::Answer& answer) {
  rendezvous::Answer message;
  message.set_status(static_cast<std::int32_t>(answer.status.code()));
  message.set_text(answer.status.text());
  message.set_generation(answer.table.generation);
  for (const PeerInfo& peer : answer.table.peers) to_message(peer, *message.add_peers());
  return message.SerializeAsString();
}

Result<Meeting::Answer> decode_answer(std::uint64_t connection, std::string_view bytes) {
  rendezvous::Answer message;
  if (!parse(message, bytes)) return malformed("not an answer");
  if (!is_status(message.status())) return malformed("unknown status");
  if (message.peers_size() > kMaxJobSize) return malformed("too many peers");
  Meeting::Answer answer;
  answer.connection = connection;
  answer.status = Status(static_cast<StatusCode>(message.status()), message.text());
  answer.table.generation = message.generation();
  for (int rank = 0; rank < message.peers_size(); ++rank) {
    Result<PeerInfo> peer = from_message(message.peers(rank));
    if (!peer) return peer.status();
    if (peer->rank != rank) return malformed("peers out of order");
    answer.table.peers.push_back(std::move(*peer));
  }
  return answer;
}

}  // namespace kolo::internal
