#include "launcher/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <set>

#include "launcher/addresses.h"
#include "launcher/agent_process.h"
#include "launcher/meeting_desk.h"
#include "launcher/output_queue.h"
#include "launcher/rank_output.h"
#include "launcher/spawn.h"
#include "launcher/verdict.h"

namespace kolo::internal {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kEndMargin = 5s;  // for agents to say that all is over, beyond the grace
// Between the first failure and SIGTERM: the other ranks see the loss and may want to report it.
constexpr auto kReportTime = 300ms;
constexpr std::size_t kMaxQueuedBytes = std::size_t{4} << 20;  // then agents are not read

bool ends_a_program(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

class Job {
 public:
  explicit Job(JobPlan plan)
      : plan_(std::move(plan)),
        signals_(io_),
        start_timer_(io_),
        report_timer_(io_),
        end_timer_(io_),
        queue_(
            io_, [this] { hold_back_agents(); }, [this](int fd) { on_closed(fd); }),
        output_(plan_.options, plan_.placement.size, plan_.colour, queue_),
        desk_(io_, plan_.placement.size, plan_.options.start_timeout.value_or(kNever),
              [this](std::size_t host, DeliverAnswer answer) {
                agents_[host]->send(ToAgent(std::move(answer)));
              }) {}

  int run() {
    // What a dead agent leaves behind becomes our child, so that we can still end it.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (Status status = output_.open_files(); !status) return refuse(status.text());
    add_signals();
    wait_for_signal();
    if (Status status = start_agents(); !status) fail(status.text());
    start_timer_.expires_after(plan_.start_timeout);
    start_timer_.async_wait([this](const error_code& error) {
      if (!error) on_start_timeout();
    });
    if (!all_gone()) io_.run();
    return conclude();
  }

 private:
  int refuse(const std::string& text) {
    say(text);
    queue_.flush();
    return kExitOwnFailure;
  }

  void say(const std::string& text) { queue_.write(2, "kolorun: " + text + "\n"); }

  // ---- agents

  Status start_agents() {
    for (std::size_t i = 0; i < plan_.placement.hosts.size(); ++i) {
      auto agent = std::make_unique<AgentProcess>(
          io_, plan_.placement.hosts[i].host,
          AgentProcess::Events{[this, i](FromAgent message) { on_message(i, std::move(message)); },
                               [this](const std::string& line) { say(line); },
                               [this, i](const std::string& why) { on_gone(i, why); }});
      KOLO_RETURN_IF_ERROR(agent->start(plan_));
      agents_.push_back(std::move(agent));
      if (plan_.options.verbose) say(describe_start(i));
    }
    return Status::ok();
  }

  std::string describe_start(std::size_t index) const {
    const Placement::OnHost& here = plan_.placement.hosts[index];
    std::string ranks = "rank " + std::to_string(here.first_rank);
    if (here.rank_count > 1) {
      ranks = "ranks " + std::to_string(here.first_rank) + " to " +
              std::to_string(here.first_rank + here.rank_count - 1);
    }
    return "host " + here.host.name + ": " + ranks + ", agent pid " +
           std::to_string(agents_[index]->pid());
  }

  void on_message(std::size_t host, FromAgent message) {
    std::visit([&](auto& body) { take(host, body); }, message);
  }

  void take(std::size_t host, AgentHello& hello) {
    if (hello.protocol != kAgentProtocolVersion) {
      return fail("the agent on host " + host_name(host) + " is of kolo " + hello.version +
                  " and this kolorun of " KOLO_VERSION
                  "; install the same version on both, or name it with --agent-path");
    }
    agents_[host]->addresses = std::move(hello.addresses);
    agents_[host]->said_hello = true;
    const bool all = agents_.size() == plan_.placement.hosts.size() &&
                     std::all_of(agents_.begin(), agents_.end(),
                                 [](const auto& agent) { return agent->said_hello; });
    if (!all || ending_) return;
    start_timer_.cancel();
    if (Status status = send_starts(); !status) fail(status.text());
  }

  Status send_starts() {
    const std::size_t hosts = agents_.size();
    std::vector<std::string> addresses(hosts, "127.0.0.1");
    for (std::size_t i = 0; hosts > 1 && i < hosts; ++i) {
      auto chosen = select_addresses(agents_[i]->addresses, plan_.options.interfaces, host_name(i));
      if (!chosen) return chosen.status();
      addresses[i].clear();
      for (const std::string& a : *chosen) addresses[i] += (addresses[i].empty() ? "" : ",") + a;
      if (plan_.options.verbose) say("host " + host_name(i) + " is reached at " + addresses[i]);
    }
    for (std::size_t i = 0; i < hosts; ++i) agents_[i]->send(ToAgent(make_start(i, addresses[i])));
    plan_.facts.secret = {};  // from here on the agents have it
    started_ = true;
    return Status::ok();
  }

  StartJob make_start(std::size_t host, const std::string& addresses) {
    const bool remote = agents_[host]->road() != Road::kFork;
    SharedEnvironment shared = shared_environment(plan_.environment, plan_.options, remote);
    if (plan_.options.verbose && !shared.left_out.empty()) {
      std::string names;
      for (const std::string& name : shared.left_out) names += " " + name;
      say("not handed to host " + host_name(host) + ", being this machine's own:" + names);
    }
    StartJob start;
    start.secret = plan_.facts.secret;
    start.job = plan_.facts.job;
    start.directory = plan_.directory;
    start.arguments = plan_.options.program;
    start.environment = std::move(shared.entries);
    start.rendezvous_port = plan_.options.rendezvous_port;
    start.grace_ms = grace_ms();
    const Placement::OnHost& here = plan_.placement.hosts[host];
    for (int local = 0; local < here.rank_count; ++local) {
      start.ranks.push_back({here.first_rank + local,
                             rank_identity(plan_.placement, host, local, plan_.facts, addresses)});
    }
    return start;
  }

  void on_start_timeout() {
    std::string silent;
    for (const auto& agent : agents_) {
      if (!agent->said_hello) silent += (silent.empty() ? "" : ", ") + agent->host_name();
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(plan_.start_timeout);
    fail("no agent of kolorun answers from " + silent + " within the start timeout (" +
         std::to_string(ms.count()) + " ms by " +
         (plan_.options.start_timeout ? "--start-timeout" : "KOLO_START_TIMEOUT_MS") +
         "); see that '" +
         (plan_.options.remote_command.empty() ? "ssh" : plan_.options.remote_command[0]) +
         "' gets there without a question, or raise --start-timeout");
  }

  void on_gone(std::size_t host, const std::string& why) {
    if (!agents_[host]->is_done && !(ending_ && !started_)) {
      end_adopted(*agents_[host]);
      fail(why);
    }
    output_.finish(plan_.placement.hosts[host]);
    if (all_gone()) io_.stop();
  }

  // The agent is dead, and so by their parent-death signal are its ranks. If this is the same
  // machine, what was left of their groups is now ours.
  void end_adopted(const AgentProcess& agent) {
    for (const pid_t child : list_children()) {
      const pid_t group = ::getpgid(child);
      if (group > 0 && agent.rank_pids.contains(group)) ::kill(-group, SIGKILL);
    }
  }

  [[nodiscard]] bool all_gone() const {
    return std::all_of(agents_.begin(), agents_.end(),
                       [](const auto& agent) { return agent->is_gone(); });
  }

  // ---- ranks

  void take(std::size_t host, RankStarted& started) {
    agents_[host]->rank_pids.insert(static_cast<pid_t>(started.pid));
    if (is_of(host, started.rank)) {
      pids_[static_cast<std::size_t>(started.rank)] = static_cast<pid_t>(started.pid);
    }
  }

  void take(std::size_t host, RankOutput& output) {
    if (!is_of(host, output.rank)) return;
    output_.take(output);
    if (queue_.queued_bytes() > kMaxQueuedBytes) hold_back_agents();
  }

  void take(std::size_t host, RankExited& exited) {
    if (!is_of(host, exited.rank)) return;
    Nanos& offset = agents_[host]->clock_offset;
    offset = std::min(offset, clock_.now() - exited.age - exited.time);
    ends_.push_back({exited.rank, host_name(host), pids_[static_cast<std::size_t>(exited.rank)],
                     exited.wait_status, exited.time, exited.ended_by_kolorun, false,
                     exited.error});
    end_hosts_.push_back(host);
    desk_.ended(exited.rank,
                "rank " + std::to_string(exited.rank) + " on " + host_name(host) +
                    (exited.error.empty() ? " ended (" + describe_status(exited.wait_status) + ")"
                                          : " could not start (" + exited.error + ")"));
    const bool failed = exit_code_of(exited.wait_status) != 0 && !exited.ended_by_kolorun;
    if (failed || only_a_lost_one_is_left()) end_job_soon();
  }

  // The others have given it up and ended: it may be frozen for ever.
  [[nodiscard]] bool only_a_lost_one_is_left() const {
    const auto lost = desk_.first_lost();
    return lost && lost->rank >= 0 && ends_.size() + 1 == pids_.size() &&
           std::ranges::find(ends_, lost->rank, &RankEnd::rank) == ends_.end();
  }

  void take(std::size_t host, RelayJoin& join) { desk_.join(host, join); }
  void take(std::size_t host, RelayLeft& left) { desk_.left(host, left); }
  void take(std::size_t host, RelayHarmed& harmed) { desk_.harmed(host, harmed); }

  void take(std::size_t host, AgentFailed& failed) {
    fail("host " + host_name(host) + ": " + failed.text);
  }

  void take(std::size_t host, AgentDone&) {
    agents_[host]->is_done = true;
    agents_[host]->hang_up();  // whoever leads there (ssh, a wrapper) may wait for that
  }

  [[nodiscard]] bool is_of(std::size_t host, int rank) const {
    const Placement::OnHost& here = plan_.placement.hosts[host];
    return rank >= here.first_rank && rank < here.first_rank + here.rank_count;
  }

  // ---- the end

  // A failure that is no rank's own.
  void fail(const std::string& text) {
    if (failure_.empty()) {
      failure_ = text;
      failure_time_ = clock_.now();
    }
    end_job_soon();
  }

  // Once, as end_job(), but running ranks have kReportTime to end by themselves.
  void end_job_soon() {
    if (!started_) return end_job();
    if (std::exchange(ending_, true)) return;
    report_timer_.expires_after(kReportTime);
    report_timer_.async_wait([this](const error_code& error) {
      if (!error) tell_to_end();
    });
    limit_the_end();
  }

  // Once: everyone else is told to end.
  void end_job() {
    if (std::exchange(ending_, true)) return;
    start_timer_.cancel();
    tell_to_end();
    limit_the_end();
  }

  void tell_to_end() {
    for (const auto& agent : agents_) {
      if (!started_)
        agent->hang_up();
      else
        agent->send(ToAgent(SendSignal{SIGTERM, true, grace_ms()}));
    }
  }

  // An agent that is frozen or cut off does not say that it is done.
  void limit_the_end() {
    end_timer_.expires_after(plan_.options.grace + kEndMargin);
    end_timer_.async_wait([this](const error_code& error) {
      if (error) return;
      for (const auto& agent : agents_) agent->hang_up();
    });
  }

  [[nodiscard]] std::uint64_t grace_ms() const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(plan_.options.grace);
    return static_cast<std::uint64_t>(std::max<std::int64_t>(1, ms.count()));
  }

  int conclude() {
    // One offset for all times of a host: their order among themselves is the agent's.
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      ends_[i].time += agents_[end_hosts_[i]]->clock_offset;
      ends_[i].harmed = desk_.is_harmed(ends_[i].rank);
    }
    std::optional<Nanos> first;  // the first failure of a rank by itself
    for (const RankEnd& end : ends_) {
      if (exit_code_of(end.wait_status) == 0 || end.ended_by_kolorun || end.harmed) continue;
      first = std::min(first.value_or(end.time), end.time);
    }
    const auto comes_first = [&](Nanos time) { return !first || time < *first; };
    const bool own_failure = !failure_.empty() && comes_first(failure_time_);
    const bool by_signal = signal_ != 0 && !own_failure && comes_first(signal_time_);
    Verdict verdict = judge(ends_, {desk_.first_lost(), by_signal ? signal_ : 0});
    if (own_failure) {
      verdict.exit_code = kExitOwnFailure;
      verdict.lines.insert(verdict.lines.begin(), failure_);
    } else if (verdict.exit_code == 0 && broken_pipe_) {
      verdict.exit_code = 128 + SIGPIPE;
    } else if (by_signal && !started_) {
      verdict.exit_code = 128 + signal_;
      verdict.lines = {describe_interruption(signal_) + ", before any rank had started"};
    }
    for (const std::string& line : verdict.lines) say(line);
    queue_.flush();
    return verdict.exit_code;
  }

  // ---- signals and output

  void add_signals() {
    signals_.add(SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) signals_.add(number);  // nohup's wish is respected
    }
  }

  void wait_for_signal() {
    signals_.async_wait([this](const error_code& error, int number) {
      if (error) return;
      if (number == SIGCHLD)
        reap();
      else
        forward(number);
      wait_for_signal();
    });
  }

  void reap() {
    // Agents first: while one of theirs is not reaped, its number cannot belong to a stranger.
    for (const auto& agent : agents_) agent->try_reap();
    for (const pid_t child : list_children()) {
      const bool is_agent = std::any_of(agents_.begin(), agents_.end(),
                                        [&](const auto& agent) { return agent->pid() == child; });
      if (!is_agent) ::waitpid(child, nullptr, WNOHANG);
    }
  }

  void forward(int number) {
    if (ends_a_program(number) && signal_ == 0) {
      signal_ = number;
      signal_time_ = clock_.now();
      if (!started_) end_job();
    }
    if (number == SIGINT && std::exchange(interrupted_, true)) {
      say("killing the ranks");
      queue_.discard();
      for (const auto& agent : agents_) agent->send(ToAgent(SendSignal{SIGKILL, true, 0}));
      return;
    }
    if (!started_) return;
    const std::uint64_t kill_after_ms = ends_a_program(number) ? grace_ms() : 0;
    for (const auto& agent : agents_) {
      agent->send(ToAgent(SendSignal{number, false, kill_after_ms}));
    }
    // Whoever dies of it has been told together with all others; to tell them twice is rude.
    if (!ends_a_program(number)) return;
    report_timer_.cancel();
    if (!std::exchange(ending_, true)) limit_the_end();
  }

  void on_closed(int fd) {
    if (fd != 1) return;
    broken_pipe_ = true;
    end_job();
  }

  void hold_back_agents() {
    const bool hold = queue_.queued_bytes() > kMaxQueuedBytes;
    for (const auto& agent : agents_) agent->hold_back(hold);
  }

  std::string host_name(std::size_t host) const { return plan_.placement.hosts[host].host.name; }

  const SteadyClock clock_;
  JobPlan plan_;
  asio::io_context io_;
  asio::signal_set signals_;
  asio::steady_timer start_timer_;
  asio::steady_timer report_timer_;
  asio::steady_timer end_timer_;
  OutputQueue queue_;
  RankOutputs output_;
  MeetingDesk desk_;
  std::vector<std::unique_ptr<AgentProcess>> agents_;  // one per host, same index
  std::vector<pid_t> pids_ = std::vector<pid_t>(static_cast<std::size_t>(plan_.placement.size));
  std::vector<RankEnd> ends_;           // times are the agents' own until conclude()
  std::vector<std::size_t> end_hosts_;  // same index
  std::string failure_;                 // kolorun's own
  Nanos failure_time_{};
  int signal_ = 0;  // the first that was to end the job
  Nanos signal_time_{};
  bool broken_pipe_ = false;  // nobody reads the output any more
  bool started_ = false;      // the agents have been told to start ranks
  bool ending_ = false;
  bool interrupted_ = false;
};

}  // namespace

int run_job(JobPlan plan) {
  Job job(std::move(plan));
  return job.run();
}

}  // namespace kolo::internal
