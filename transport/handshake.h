// Handshake: the mutual challenge with which every connection of a job begins. A pure state
// machine over fixed structs: no socket, no clock.
//
//   1. connector -> acceptor   Hello      who I am, whom I want, my nonce
//   2. acceptor  -> connector  Challenge  my nonce, my proof; or only why not, if the Hello is of
//                                         another protocol or job
//   3. connector -> acceptor   Proof      my proof
//   4. acceptor  -> connector  Verdict    welcome, or why not
//
// A proof is an HMAC-SHA256 under the job's secret over a label of the side and the whole of Hello
// and Challenge: both nonces, role, job, generation, ranks and stream. So nothing recorded can be
// played again, nothing can be reflected, and every bit of the exchange counts. The session's key
// comes from the same transcript.
//
// Use: write take_output() to the peer; read exactly wanted() bytes and feed() them; repeat until
// done(). A status that is not OK ends it: write what take_output() still has, then close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/crypto.h"

namespace kolo::internal {

enum class HandshakeRole : std::uint32_t { kRendezvous = 1, kControl = 2, kData = 3, kMemory = 4 };

// What a connector says of itself; what an acceptor learns.
struct HandshakeClaim {
  std::uint32_t protocol = 0;
  HandshakeRole role = HandshakeRole::kRendezvous;
  std::uint32_t stream = 0;
  std::int32_t from = -1;
  std::int32_t to = -1;
  std::uint64_t generation = 0;
};

// The reasons that an acceptor can give. The numbers are on the wire.
enum class Refusal : std::uint32_t {
  kNone = 0,
  kOtherProtocol = 1,
  kOtherJob = 2,
  kWrongRole = 3,
  kWrongRank = 4,
  kWrongGeneration = 5,
  kWrongStream = 6,
  kDuplicate = 7,
};

// Why a handshake has failed, in few words.
enum class HandshakeFault { kNone, kNotKolo, kOtherJob, kWrongSecret, kRefused };

class Handshake {
 public:
  static constexpr std::size_t kMaxBytes = 4096;  // no side ever reads more than this

  // Decides on a peer that has proved itself.
  using Admit = std::function<Refusal(const HandshakeClaim&)>;

  static Handshake connector(std::string_view job, std::string_view secret,
                             const HandshakeClaim& claim, const Digest& nonce);
  // `protocol` 0 lets every protocol number through to `admit`.
  static Handshake acceptor(std::string_view job, std::string_view secret, std::uint32_t protocol,
                            Admit admit, const Digest& nonce);

  [[nodiscard]] std::string take_output();
  [[nodiscard]] std::size_t wanted() const;  // 0 when done or failed
  // What has come so far of the wanted bytes can still become a handshake's.
  [[nodiscard]] bool can_begin_with(std::span<const std::byte> bytes) const;
  // Errors: INVALID_ARGUMENT (other protocol, naming both; other job; wrong secret; refused rank,
  // generation, stream or role), INTERNAL (not a kolo handshake at all).
  Status feed(std::span<const std::byte> bytes);

  [[nodiscard]] HandshakeFault fault() const { return fault_; }  // kOtherJob: or version
  [[nodiscard]] bool done() const { return step_ == Step::kDone; }
  [[nodiscard]] bool is_connector() const { return connector_; }
  // An acceptor has heard a Hello that fits its job.
  [[nodiscard]] bool introduced() const { return step_ == Step::kProof || step_ == Step::kDone; }
  // Once done:
  [[nodiscard]] const HandshakeClaim& peer() const { return claim_; }
  [[nodiscard]] const Key& session_key() const { return session_key_; }

 private:
  enum class Step { kHello, kChallenge, kProof, kVerdict, kDone, kFailed };

  Handshake(std::string_view job, std::string_view secret, const Digest& nonce);
  Status fail(HandshakeFault fault, Status status);
  Status on_hello(std::span<const std::byte> bytes);
  Status on_challenge(std::span<const std::byte> bytes);
  Status on_proof(std::span<const std::byte> bytes);
  Status on_verdict(std::span<const std::byte> bytes);
  Digest code(std::string_view label, std::span<const std::byte> more = {});

  bool connector_ = false;
  Step step_ = Step::kHello;
  HandshakeFault fault_ = HandshakeFault::kNone;
  Hmac hmac_;
  Digest job_tag_;
  Digest nonce_;
  std::uint32_t protocol_ = 0;
  HandshakeClaim claim_;
  Admit admit_;
  std::string transcript_;  // Hello and the part of Challenge before its proof
  std::string output_;
  Key session_key_;
};

}  // namespace kolo::internal
