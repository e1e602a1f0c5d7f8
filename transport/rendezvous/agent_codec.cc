#include "transport/rendezvous/agent_codec.h"

#include <algorithm>
#include <csignal>
#include <limits>

#include "agent.pb.h"
#include "transport/rendezvous/codec.h"

namespace kolo::internal {
namespace {

Status malformed(const char* what) {
  return invalid_argument(std::string("malformed agent message: ") + what +
                          "; run the same version of kolo on every host");
}

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

bool is_rank(int rank) { return rank >= 0 && rank < kMaxJobSize; }

template <typename Repeated>
Status take_texts(const Repeated& from, std::vector<std::string>& to) {
  to.reserve(static_cast<std::size_t>(from.size()));
  for (const std::string& text : from) {
    if (has_nul(text)) return malformed("a NUL byte in a text for the kernel");
    to.push_back(text);
  }
  return Status::ok();
}

void put(agent::ToAgent& to, const StartJob& job) {
  agent::Start& start = *to.mutable_start();
  start.set_secret(std::string(std::string_view(job.secret)));
  start.set_job(job.job);
  start.set_directory(job.directory);
  start.set_rendezvous_port(job.rendezvous_port);
  start.set_grace_ms(job.grace_ms);
  for (const std::string& word : job.arguments) start.add_arguments(word);
  for (const std::string& entry : job.environment) start.add_environment(entry);
  for (const StartJob::Rank& rank : job.ranks) {
    agent::Rank& added = *start.add_ranks();
    added.set_rank(rank.rank);
    for (const std::string& entry : rank.environment) added.add_environment(entry);
  }
}

void put(agent::ToAgent& to, const DeliverAnswer& deliver) {
  to.mutable_deliver()->set_connection(deliver.connection);
  to.mutable_deliver()->set_answer(deliver.answer);
}

void put(agent::ToAgent& to, const SendSignal& signal) {
  to.mutable_signal()->set_number(signal.number);
  to.mutable_signal()->set_ends_job(signal.ends_job);
  to.mutable_signal()->set_kill_after_ms(signal.kill_after_ms);
}

void put(agent::FromAgent& to, const AgentHello& hello) {
  to.mutable_hello()->set_protocol(hello.protocol);
  to.mutable_hello()->set_version(hello.version);
  for (const HostAddress& address : hello.addresses) {
    agent::Address& added = *to.mutable_hello()->add_addresses();
    added.set_interface(address.interface);
    added.set_address(address.address);
    added.set_loopback(address.loopback);
  }
}

void put(agent::FromAgent& to, const RankStarted& started) {
  to.mutable_started()->set_rank(started.rank);
  to.mutable_started()->set_pid(started.pid);
}

void put(agent::FromAgent& to, const RankOutput& output) {
  to.mutable_output()->set_rank(output.rank);
  to.mutable_output()->set_stream(output.stream);
  to.mutable_output()->set_data(output.data);
}

void put(agent::FromAgent& to, const RankExited& exited) {
  to.mutable_exited()->set_rank(exited.rank);
  to.mutable_exited()->set_wait_status(exited.wait_status);
  to.mutable_exited()->set_time_ns(static_cast<std::uint64_t>(exited.time.count()));
  to.mutable_exited()->set_age_ns(static_cast<std::uint64_t>(exited.age.count()));
  to.mutable_exited()->set_ended_by_kolorun(exited.ended_by_kolorun);
  to.mutable_exited()->set_error(exited.error);
}

void put(agent::FromAgent& to, const RelayJoin& join) {
  to.mutable_join()->set_connection(join.connection);
  to.mutable_join()->set_join(join.join);
}

void put(agent::FromAgent& to, const RelayLeft& left) {
  to.mutable_left()->set_connection(left.connection);
}

void put(agent::FromAgent& to, const RelayHarmed& harmed) {
  to.mutable_harmed()->set_connection(harmed.connection);
  to.mutable_harmed()->set_harm(harmed.harm);
}

void put(agent::FromAgent& to, const AgentFailed& failed) {
  to.mutable_failed()->set_text(failed.text);
}

void put(agent::FromAgent& to, const AgentDone&) { to.mutable_done(); }

Result<ToAgent> take(const agent::Start& start) {
  StartJob job;
  job.secret = std::string_view(start.secret());
  job.job = start.job();
  job.directory = start.directory();
  job.rendezvous_port = start.rendezvous_port();
  job.grace_ms = start.grace_ms();
  if (job.rendezvous_port < 0 || job.rendezvous_port > 65535) return malformed("port");
  if (has_nul(job.directory)) return malformed("directory");
  KOLO_RETURN_IF_ERROR(take_texts(start.arguments(), job.arguments));
  KOLO_RETURN_IF_ERROR(take_texts(start.environment(), job.environment));
  if (job.arguments.empty()) return malformed("no program");
  if (start.ranks_size() == 0 || start.ranks_size() > kMaxJobSize) return malformed("ranks");
  for (const agent::Rank& rank : start.ranks()) {
    StartJob::Rank& added = job.ranks.emplace_back();
    added.rank = rank.rank();
    if (!is_rank(added.rank)) return malformed("rank");
    KOLO_RETURN_IF_ERROR(take_texts(rank.environment(), added.environment));
  }
  return ToAgent(std::move(job));
}

Result<FromAgent> take(const agent::Output& output) {
  if (!is_rank(output.rank())) return malformed("rank of output");
  if (output.stream() != 1 && output.stream() != 2) return malformed("stream of output");
  return FromAgent(RankOutput{output.rank(), output.stream(), output.data()});
}

Result<FromAgent> take(const agent::Exited& exited) {
  if (!is_rank(exited.rank())) return malformed("rank that exited");
  // A quarter of the range each, so that a reader may add and subtract them.
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 4);
  if (exited.time_ns() > kMost || exited.age_ns() > kMost) return malformed("time of an exit");
  return FromAgent(RankExited{exited.rank(), exited.wait_status() & 0xffff,
                              Nanos(static_cast<std::int64_t>(exited.time_ns())),
                              Nanos(static_cast<std::int64_t>(exited.age_ns())),
                              exited.ended_by_kolorun(), exited.error()});
}

Result<FromAgent> take(const agent::Hello& hello) {
  AgentHello result{hello.protocol(), hello.version(), {}};
  for (const agent::Address& address : hello.addresses()) {
    result.addresses.push_back({address.interface(), address.address(), address.loopback()});
  }
  return FromAgent(std::move(result));
}

template <typename Message>
bool parse(Message& message, std::string_view bytes) {
  return bytes.size() <= kMaxAgentFrameBytes &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string protobuf_version() {
  return google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
}

std::string encode(const ToAgent& message) {
  agent::ToAgent to;
  std::visit([&](const auto& body) { put(to, body); }, message);
  std::string bytes = to.SerializeAsString();
  if (to.has_start()) wipe(*to.mutable_start()->mutable_secret());
  return bytes;
}

std::string encode(const FromAgent& message) {
  agent::FromAgent from;
  std::visit([&](const auto& body) { put(from, body); }, message);
  return from.SerializeAsString();
}

Result<ToAgent> decode_to_agent(std::string_view bytes) {
  agent::ToAgent to;
  if (!parse(to, bytes)) return malformed("no such message");
  switch (to.kind_case()) {
    case agent::ToAgent::kStart: {
      Result<ToAgent> job = take(to.start());
      wipe(*to.mutable_start()->mutable_secret());
      return job;
    }
    case agent::ToAgent::kDeliver:
      return ToAgent(DeliverAnswer{to.deliver().connection(), to.deliver().answer()});
    case agent::ToAgent::kSignal:
      if (to.signal().number() < 1 || to.signal().number() >= NSIG) return malformed("signal");
      return ToAgent(
          SendSignal{to.signal().number(), to.signal().ends_job(), to.signal().kill_after_ms()});
    case agent::ToAgent::KIND_NOT_SET: break;
  }
  return malformed("unknown kind");
}

Result<FromAgent> decode_from_agent(std::string_view bytes) {
  agent::FromAgent from;
  if (!parse(from, bytes)) return malformed("no such message");
  switch (from.kind_case()) {
    case agent::FromAgent::kHello: return take(from.hello());
    case agent::FromAgent::kStarted:
      if (!is_rank(from.started().rank()) || from.started().pid() < 1) return malformed("start");
      return FromAgent(RankStarted{from.started().rank(), from.started().pid()});
    case agent::FromAgent::kOutput: return take(from.output());
    case agent::FromAgent::kExited: return take(from.exited());
    case agent::FromAgent::kJoin:
      return FromAgent(RelayJoin{from.join().connection(), from.join().join()});
    case agent::FromAgent::kLeft: return FromAgent(RelayLeft{from.left().connection()});
    case agent::FromAgent::kHarmed:
      return FromAgent(RelayHarmed{from.harmed().connection(), from.harmed().harm()});
    case agent::FromAgent::kFailed: return FromAgent(AgentFailed{from.failed().text()});
    case agent::FromAgent::kDone: return FromAgent(AgentDone{});
    case agent::FromAgent::KIND_NOT_SET: break;
  }
  return malformed("unknown kind");
}

}  // namespace kolo::internal
