// The messages between kolorun and its agents as plain structs, and their bytes (agent.proto).
// Pure functions. Decoding checks what a reader would otherwise have to: numbers in range, no NUL
// in texts for the kernel; the error says what was wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/secret.h"

namespace kolo::internal {

inline constexpr std::uint32_t kAgentProtocolVersion = 1;
// The first bytes of an agent, so that what a login shell prints before them can be skipped.
inline constexpr std::string_view kAgentGreeting = "\nkolo-agent\n";
inline constexpr std::size_t kMaxAgentFrameBytes = std::size_t{65} << 20;

// ---- kolorun to agent

struct StartJob {
  struct Rank {
    int rank = 0;
    std::vector<std::string> environment;
    bool operator==(const Rank&) const = default;
  };
  Secret secret;
  std::string job;
  std::string directory;  // empty: stay
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // on top of the agent's own
  std::vector<Rank> ranks;
  int rendezvous_port = 0;
  std::uint64_t grace_ms = 0;  // between SIGTERM and SIGKILL for what outlives all ranks
  bool operator==(const StartJob&) const = default;
};

struct DeliverAnswer {
  std::uint64_t connection = 0;
  std::string answer;
  bool operator==(const DeliverAnswer&) const = default;
};

struct SendSignal {
  int number = 0;
  bool ends_job = false;
  std::uint64_t kill_after_ms = 0;  // 0: never
  bool operator==(const SendSignal&) const = default;
};

using ToAgent = std::variant<StartJob, DeliverAnswer, SendSignal>;

// ---- agent to kolorun

struct HostAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
  bool operator==(const HostAddress&) const = default;
};

struct AgentHello {
  std::uint32_t protocol = kAgentProtocolVersion;
  std::string version;
  std::vector<HostAddress> addresses;
  bool operator==(const AgentHello&) const = default;
};

struct RankStarted {
  int rank = 0;
  std::int64_t pid = 0;
  bool operator==(const RankStarted&) const = default;
};

struct RankOutput {
  int rank = 0;
  int stream = 1;    // 1 stdout, 2 stderr
  std::string data;  // empty: the stream has ended
  bool operator==(const RankOutput&) const = default;
};

struct RankExited {
  int rank = 0;
  int wait_status = 0;
  Nanos time{};  // on the agent's clock
  Nanos age{};   // how long before sending
  bool ended_by_kolorun = false;
  std::string error;
  bool operator==(const RankExited&) const = default;
};

struct RelayJoin {
  std::uint64_t connection = 0;
  std::string join;
  bool operator==(const RelayJoin&) const = default;
};

struct RelayLeft {
  std::uint64_t connection = 0;
  bool operator==(const RelayLeft&) const = default;
};

// The rank of this connection was harmed by another's end (RendezvousClient::tell_harmed()).
struct RelayHarmed {
  std::uint64_t connection = 0;
  std::string harm;  // codec.h: decode_harm
  bool operator==(const RelayHarmed&) const = default;
};

struct AgentFailed {
  std::string text;
  bool operator==(const AgentFailed&) const = default;
};

struct AgentDone {
  bool operator==(const AgentDone&) const = default;
};

using FromAgent = std::variant<AgentHello, RankStarted, RankOutput, RankExited, RelayJoin,
                               RelayLeft, RelayHarmed, AgentFailed, AgentDone>;

// Of the library that makes the bytes, for --check-build: "3.21.12".
[[nodiscard]] std::string protobuf_version();

[[nodiscard]] std::string encode(const ToAgent& message);
[[nodiscard]] std::string encode(const FromAgent& message);
[[nodiscard]] Result<ToAgent> decode_to_agent(std::string_view bytes);
[[nodiscard]] Result<FromAgent> decode_from_agent(std::string_view bytes);

}  // namespace kolo::internal
