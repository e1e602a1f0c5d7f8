#include "transport/handshake.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::uint32_t kMagic = 0x4f4c4f4b;  // "KOLO"

struct Hello {
  std::uint32_t magic;
  std::uint32_t protocol;
  std::uint32_t role;
  std::uint32_t stream;
  std::int32_t from;
  std::int32_t to;
  std::uint64_t generation;
  Digest job_tag;
  Digest nonce;
};
static_assert(sizeof(Hello) == 96 && std::is_trivially_copyable_v<Hello>);

struct Challenge {
  std::uint32_t magic;
  std::uint32_t protocol;
  std::uint32_t refusal;
  std::uint32_t zero;
  Digest job_tag;
  Digest nonce;
  Digest proof;  // the last: everything before it is part of the transcript
};
static_assert(sizeof(Challenge) == 112 && std::is_trivially_copyable_v<Challenge>);

struct Verdict {
  std::uint32_t refusal;
  std::uint32_t zero;
  Digest proof;
};
static_assert(sizeof(Verdict) == 40 && std::is_trivially_copyable_v<Verdict>);

static_assert(sizeof(Hello) + sizeof(Challenge) + sizeof(Digest) + sizeof(Verdict) <
              Handshake::kMaxBytes);

template <typename T>
std::string_view view_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
T read_struct(std::span<const std::byte> bytes) {
  KOLO_CHECK(bytes.size() == sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view side_label(bool connector) {
  return connector ? "kolo connector's proof" : "kolo acceptor's proof";
}

std::string_view refusal_text(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone: return "nothing";
    case Refusal::kOtherProtocol: return "it speaks another protocol";
    case Refusal::kOtherJob: return "it belongs to another job";
    case Refusal::kWrongRole: return "it does not serve this kind of connection";
    case Refusal::kWrongRank: return "it does not expect this rank";
    case Refusal::kWrongGeneration: return "it is in another generation of the job";
    case Refusal::kWrongStream: return "it uses another number of streams";
    case Refusal::kDuplicate: return "rank already present";
  }
  return "unknown reason";
}

Status not_kolo() {
  return {StatusCode::kInternal,
          "the peer does not speak kolo's handshake; is another program "
          "listening on, or connecting to, this port?"};
}

Status other_protocol(std::uint32_t mine, std::uint32_t theirs) {
  return invalid_argument("other protocol version: kolo protocol " + std::to_string(mine) +
                          " here, " + std::to_string(theirs) +
                          " at the peer; run the same version of kolo everywhere");
}

Status other_job() {
  return invalid_argument(
      "other job: the peer belongs to another job; see that KOLO_RENDEZVOUS "
      "and KOLO_JOB come from one launch");
}

Status wrong_secret() {
  return invalid_argument(
      "wrong secret: the peer could not prove the job's secret; give every "
      "rank the same KOLO_SECRET or KOLO_SECRET_FILE");
}

Status refused(const HandshakeClaim& claim, Refusal refusal) {
  std::string text = "the peer refused rank ";
  text += std::to_string(claim.from);
  text += " (generation ";
  text += std::to_string(claim.generation);
  text += ", stream ";
  text += std::to_string(claim.stream);
  text += "): ";
  text += refusal_text(refusal);
  return invalid_argument(std::move(text));
}

}  // namespace

Handshake::Handshake(std::string_view job, std::string_view secret, const Digest& nonce)
    : hmac_(bytes_of(secret)), job_tag_(sha256(job)), nonce_(nonce) {}

Handshake Handshake::connector(std::string_view job, std::string_view secret,
                               const HandshakeClaim& claim, const Digest& nonce) {
  Handshake made(job, secret, nonce);
  made.connector_ = true;
  made.protocol_ = claim.protocol;
  made.claim_ = claim;
  const Hello hello{kMagic,           claim.protocol, static_cast<std::uint32_t>(claim.role),
                    claim.stream,     claim.from,     claim.to,
                    claim.generation, made.job_tag_,  nonce};
  made.output_ = view_of(hello);
  made.transcript_ = made.output_;
  made.step_ = Step::kChallenge;
  return made;
}

Handshake Handshake::acceptor(std::string_view job, std::string_view secret, std::uint32_t protocol,
                              Admit admit, const Digest& nonce) {
  Handshake made(job, secret, nonce);
  made.protocol_ = protocol;
  made.admit_ = std::move(admit);
  return made;
}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

std::size_t Handshake::wanted() const {
  switch (step_) {
    case Step::kHello: return sizeof(Hello);
    case Step::kChallenge: return sizeof(Challenge);
    case Step::kProof: return sizeof(Digest);
    case Step::kVerdict: return sizeof(Verdict);
    case Step::kDone:
    case Step::kFailed: return 0;
  }
  return 0;
}

bool Handshake::can_begin_with(std::span<const std::byte> bytes) const {
  if (step_ != Step::kHello && step_ != Step::kChallenge) return true;
  return std::memcmp(bytes.data(), &kMagic, std::min(bytes.size(), sizeof kMagic)) == 0;
}

Status Handshake::fail(HandshakeFault fault, Status status) {
  fault_ = fault;
  step_ = Step::kFailed;
  return status;
}

Digest Handshake::code(std::string_view label, std::span<const std::byte> more) {
  const std::array<std::span<const std::byte>, 3> parts{bytes_of(label), bytes_of(transcript_),
                                                        more};
  return hmac_(parts);
}

Status Handshake::feed(std::span<const std::byte> bytes) {
  KOLO_CHECK(bytes.size() == wanted() && !bytes.empty());
  switch (step_) {
    case Step::kHello: return on_hello(bytes);
    case Step::kChallenge: return on_challenge(bytes);
    case Step::kProof: return on_proof(bytes);
    case Step::kVerdict: return on_verdict(bytes);
    case Step::kDone:
    case Step::kFailed: break;
  }
  return {StatusCode::kInternal, "a handshake was fed after its end"};
}

Status Handshake::on_hello(std::span<const std::byte> bytes) {
  const Hello hello = read_struct<Hello>(bytes);
  if (hello.magic != kMagic) return fail(HandshakeFault::kNotKolo, not_kolo());
  claim_ = {hello.protocol, static_cast<HandshakeRole>(hello.role),
            hello.stream,   hello.from,
            hello.to,       hello.generation};

  Challenge challenge{};
  challenge.magic = kMagic;
  challenge.protocol = protocol_ != 0 ? protocol_ : hello.protocol;
  // Who does not know the job learns neither its name's tag nor a proof to try guesses against.
  const auto refuse = [&](Refusal refusal, Status status) {
    challenge.refusal = static_cast<std::uint32_t>(refusal);
    output_ += view_of(challenge);
    return fail(HandshakeFault::kOtherJob, std::move(status));
  };
  if (protocol_ != 0 && hello.protocol != protocol_) {
    return refuse(Refusal::kOtherProtocol, other_protocol(protocol_, hello.protocol));
  }
  if (!equal_in_constant_time(hello.job_tag, job_tag_)) {
    return refuse(Refusal::kOtherJob, other_job());
  }
  challenge.job_tag = job_tag_;
  challenge.nonce = nonce_;
  transcript_ = view_of(hello);
  transcript_ += view_of(challenge).substr(0, offsetof(Challenge, proof));
  challenge.proof = code(side_label(false));
  output_ += view_of(challenge);
  step_ = Step::kProof;
  return Status::ok();
}

Status Handshake::on_challenge(std::span<const std::byte> bytes) {
  const Challenge challenge = read_struct<Challenge>(bytes);
  if (challenge.magic != kMagic) return fail(HandshakeFault::kNotKolo, not_kolo());
  if (challenge.protocol != protocol_) {
    return fail(HandshakeFault::kOtherJob, other_protocol(protocol_, challenge.protocol));
  }
  if (!equal_in_constant_time(challenge.job_tag, job_tag_))
    return fail(HandshakeFault::kOtherJob, other_job());
  transcript_ += view_of(challenge).substr(0, offsetof(Challenge, proof));
  if (!equal_in_constant_time(challenge.proof, code(side_label(false)))) {
    return fail(HandshakeFault::kWrongSecret, wrong_secret());
  }
  if (challenge.refusal != 0) {
    return fail(HandshakeFault::kRefused, refused(claim_, static_cast<Refusal>(challenge.refusal)));
  }
  output_ += view_of(code(side_label(true)));
  step_ = Step::kVerdict;
  return Status::ok();
}

Status Handshake::on_proof(std::span<const std::byte> bytes) {
  if (!equal_in_constant_time(bytes, code(side_label(true))))
    return fail(HandshakeFault::kWrongSecret, wrong_secret());
  const Refusal refusal = admit_(claim_);
  Verdict verdict{static_cast<std::uint32_t>(refusal), 0, {}};
  verdict.proof =
      code("kolo verdict", bytes_of(view_of(verdict).substr(0, offsetof(Verdict, proof))));
  output_ += view_of(verdict);
  if (refusal != Refusal::kNone) {
    return fail(HandshakeFault::kRefused,
                invalid_argument("refused rank " + std::to_string(claim_.from) + ": " +
                                 std::string(refusal_text(refusal))));
  }
  session_key_ = Key(code("kolo session key"));
  step_ = Step::kDone;
  return Status::ok();
}

Status Handshake::on_verdict(std::span<const std::byte> bytes) {
  const Verdict verdict = read_struct<Verdict>(bytes);
  const Digest expected =
      code("kolo verdict", bytes_of(view_of(verdict).substr(0, offsetof(Verdict, proof))));
  if (!equal_in_constant_time(verdict.proof, expected))
    return fail(HandshakeFault::kWrongSecret, wrong_secret());
  if (verdict.refusal != 0)
    return fail(HandshakeFault::kRefused, refused(claim_, static_cast<Refusal>(verdict.refusal)));
  session_key_ = Key(code("kolo session key"));
  step_ = Step::kDone;
  return Status::ok();
}

}  // namespace kolo::internal
