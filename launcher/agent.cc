#include "launcher/agent.h"

#include <fcntl.h>
#include <signal.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "launcher/addresses.h"
#include "launcher/frame_link.h"
#include "launcher/pmi_donors.h"
#include "launcher/program.h"
#include "launcher/rank_environment.h"
#include "launcher/rank_group.h"
#include "launcher/spawn.h"
#include "transport/rendezvous/agent_codec.h"
#include "transport/rendezvous/front_end.h"

namespace kolo::internal {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kMaxQueuedBytes = std::size_t{1} << 20;  // then ranks' pipes are left full
constexpr auto kLeftoverPoll = 20ms;
constexpr auto kDrainIdle = 200ms;
constexpr auto kDonorsPatience = 60s;

// One stream of one rank on its way to kolorun.
struct Stream {
  Stream(asio::io_context& io, UniqueFd fd, int rank_, int stream_)
      : descriptor(io, fd.release()), rank(rank_), number(stream_) {}
  asio::posix::stream_descriptor descriptor;
  int rank;
  int number;  // 1 stdout, 2 stderr
  std::array<char, std::size_t{32} << 10> buffer{};
  bool reading = false;
  bool ended = false;
};

class Agent final : public MeetingBackend {
 public:
  explicit Agent(Environment environment)
      : environment_(std::move(environment)),
        link_(io_, UniqueFd(::fcntl(0, F_DUPFD_CLOEXEC, 3)),
              UniqueFd(::fcntl(1, F_DUPFD_CLOEXEC, 3)), "",
              {[this](std::string_view frame) { on_frame(frame); },
               [this](const Status&) { die(); }, [this] { on_drained(); }}),
        signals_(io_, SIGCHLD, SIGTERM, SIGHUP),
        kill_timer_(io_),
        poll_timer_(io_) {}

  int run() {
    link_.send_raw(std::string(kAgentGreeting));
    link_.send(
        encode(FromAgent(AgentHello{kAgentProtocolVersion, KOLO_VERSION, list_addresses()})));
    link_.start();
    wait_for_signal();
    io_.run();
    return exit_code_;
  }

  // From the front end's thread.
  void join(std::uint64_t connection, std::string bytes) override {
    asio::post(io_, [this, connection, join = std::move(bytes)] {
      ++joined_;
      link_.send(encode(FromAgent(RelayJoin{connection, join})));
    });
  }
  void left(std::uint64_t connection) override {
    asio::post(io_, [this, connection] {
      --joined_;
      link_.send(encode(FromAgent(RelayLeft{connection})));
      if (draining_) finish_if_drained();
    });
  }
  void harmed(std::uint64_t connection, std::string bytes) override {
    asio::post(io_, [this, connection, harm = std::move(bytes)] {
      link_.send(encode(FromAgent(RelayHarmed{connection, harm})));
    });
  }

 private:
  // kolorun is gone, or this process was told to end: nobody is there to be gentle for.
  void die() {
    ranks_.signal(SIGKILL, true, clock_.now());
    exit_code_ = 1;
    io_.stop();
  }

  void on_frame(std::string_view frame) {
    auto message = decode_to_agent(frame);
    if (!message) return give_up(message.status().text());
    if (auto* job = std::get_if<StartJob>(&*message))
      start(*job);
    else if (auto* answer = std::get_if<DeliverAnswer>(&*message))
      deliver(*answer);
    else
      on_signal(std::get<SendSignal>(*message));
  }

  void give_up(const std::string& text) {
    link_.send(encode(FromAgent(AgentFailed{text})));
    ranks_.signal(SIGKILL, true, clock_.now());
    finishing_ = true;
    finish_if_sent();
  }

  void deliver(DeliverAnswer& answer) {
    if (front_end_) front_end_->deliver(answer.connection, std::move(answer.answer));
  }

  void start(const StartJob& job) {
    if (started_) return give_up("told to start twice");
    started_ = true;
    grace_ = std::chrono::milliseconds(job.grace_ms);
    const std::string address = "127.0.0.1:" + std::to_string(job.rendezvous_port);
    auto front_end = RendezvousFrontEnd::start(address, {job.job, job.secret}, *this);
    if (!front_end) {
      return give_up(front_end.status().text() +
                     (job.rendezvous_port == 0 ? "" : " (--rendezvous-port)"));
    }
    front_end_ = *std::move(front_end);
    const Environment environment = compose(environment_, {&job.environment});
    if (!wants_mpi(environment)) return start_ranks(job, {});
    donors_.emplace(io_, static_cast<int>(job.ranks.size()),
                    PmiDonors::Events{[this, job](std::vector<Donation> donations) {
                                        start_ranks(job, std::move(donations));
                                      },
                                      [this](const std::string& why) {
                                        give_up("no place in MPI's world: " + why);
                                      }});
    if (Status status = donors_->start(environment); !status) return give_up(status.text());
    poll_timer_.expires_after(kDonorsPatience);
    poll_timer_.async_wait([this](const error_code& error) {
      if (!error && !ranks_started_) give_up(std::string(kMpiexec) + " has started nothing");
    });
  }

  // `donations`: one for each rank, or none.
  void start_ranks(const StartJob& job, std::vector<Donation> donations) {
    if (finishing_) return;
    ranks_started_ = true;
    poll_timer_.cancel();
    for (std::size_t i = 0; i < job.ranks.size(); ++i) {
      if (!start_rank(job, job.ranks[i], donations.empty() ? nullptr : &donations[i])) break;
    }
    look();
  }

  bool start_rank(const StartJob& job, const StartJob::Rank& rank, const Donation* donation) {
    auto out = make_pipe();
    auto err = make_pipe();
    if (!out || !err) {
      report_unstarted(rank.rank, {126, (out ? err : out).status().text()});
      return false;
    }
    SpawnRequest request;
    request.arguments = job.arguments;
    const Environment meeting = meeting_variables(front_end_->endpoint());
    Environment places;  // in MPI's world
    if (donation != nullptr) {
      places = donation->variables;
      places.push_back("PMI_FD=" + std::to_string(donation->socket.get()));
      request.kept = donation->socket.get();
    }
    Environment secret = {"KOLO_SECRET=" + std::string(std::string_view(job.secret))};
    request.environment =
        compose(environment_, {&job.environment, &rank.environment, &meeting, &places, &secret});
    request.directory = job.directory;
    request.out = out->write.get();
    request.err = err->write.get();
    request.dies_with_parent = true;
    const Spawned child = spawn(request);
    wipe(secret.front());
    for (std::string& entry : request.environment) {
      if (entry.starts_with("KOLO_SECRET=")) wipe(entry);
    }
    if (child.error_number != 0) {
      auto why = explain(job.arguments[0], job.directory, child.error_number);
      if (child.in_directory) {
        why = {126,
               "cannot enter the directory '" + job.directory + "' there; give one with --wdir"};
      }
      report_unstarted(rank.rank, why);
      return false;
    }
    ranks_.add(rank.rank, child.pid);
    link_.send(encode(FromAgent(RankStarted{rank.rank, child.pid})));
    add_stream(std::move(out->read), rank.rank, 1);
    add_stream(std::move(err->read), rank.rank, 2);
    return true;
  }

  // The kernel says the same of a directory and of a file that is not executable.
  [[nodiscard]] ProgramCheck explain(const std::string& name, const std::string& directory,
                                     int error_number) const {
    const auto path = find_variable(environment_, "PATH");
    ProgramCheck why = check_program(name, std::string(path.value_or("/bin:/usr/bin")), directory);
    return why.exit_code != 0 ? why : explain_exec_error(name, error_number);
  }

  void report_unstarted(int rank, const ProgramCheck& why) {
    link_.send(encode(
        FromAgent(RankExited{rank, why.exit_code << 8, clock_.now(), Nanos(0), false, why.error})));
  }

  // ---- output

  void add_stream(UniqueFd fd, int rank, int number) {
    streams_.push_back(std::make_unique<Stream>(io_, std::move(fd), rank, number));
    read_more(*streams_.back());
  }

  void read_more(Stream& stream) {
    if (stream.reading || stream.ended) return;
    if (link_.queued_bytes() > kMaxQueuedBytes) {
      held_back_ = true;
      return;
    }
    stream.reading = true;
    stream.descriptor.async_read_some(
        asio::buffer(stream.buffer), [this, &stream](const error_code& error, std::size_t bytes) {
          stream.reading = false;
          read_anything_ = true;
          if (error) return end_stream(stream);
          link_.send(encode(FromAgent(
              RankOutput{stream.rank, stream.number, std::string(stream.buffer.data(), bytes)})));
          read_more(stream);
        });
  }

  void end_stream(Stream& stream) {
    if (std::exchange(stream.ended, true)) return;
    error_code ignored;
    stream.descriptor.close(ignored);
    link_.send(encode(FromAgent(RankOutput{stream.rank, stream.number, ""})));
    if (draining_) finish_if_drained();
  }

  void on_drained() {
    if (std::exchange(held_back_, false)) {
      for (const auto& stream : streams_) read_more(*stream);
    }
    finish_if_sent();
  }

  // ---- signals and the end

  void wait_for_signal() {
    signals_.async_wait([this](const error_code& error, int number) {
      if (error) return;
      if (number != SIGCHLD) return die();
      look();
      wait_for_signal();
    });
  }

  void on_signal(const SendSignal& signal) {
    look();  // who has failed by himself before now is not to be called ended by kolorun
    ranks_.signal(signal.number, signal.ends_job, clock_.now());
    if (donors_ && !ranks_started_ && signal.kill_after_ms > 0) {
      return give_up("told to end before its ranks had started");
    }
    if (signal.kill_after_ms == 0 || kill_armed_) return;
    arm_kill(std::chrono::milliseconds(signal.kill_after_ms));
  }

  void arm_kill(Nanos delay) {
    kill_armed_ = true;
    kill_timer_.expires_after(delay);
    kill_timer_.async_wait([this](const error_code& error) {
      if (!error) ranks_.signal(SIGKILL, true, clock_.now());
    });
  }

  void look() {
    const Nanos now = clock_.now();
    for (const RankGroup::End& end : ranks_.look(now)) {
      link_.send(encode(FromAgent(
          RankExited{end.rank, end.wait_status, end.time, now - end.time, end.told_to_end, ""})));
    }
    if (donors_ && !ranks_started_) static_cast<void>(donors_->is_gone(now));
    if (ranks_started_ && !ending_ && !ranks_.any_running()) {
      ending_ = true;
      end_leftovers(true);
    }
  }

  // Every rank has ended; its helpers may not have.
  void end_leftovers(bool first_time) {
    if (donors_) donors_->release();
    const bool donors_left = donors_ && !donors_->is_gone(clock_.now());
    if (!ranks_.any_left() && !donors_left) return drain();
    if (first_time) {
      ranks_.signal(SIGTERM, true, clock_.now());
      if (!kill_armed_) arm_kill(grace_);
    }
    poll_timer_.expires_after(kLeftoverPoll);
    poll_timer_.async_wait([this](const error_code& error) {
      if (!error) end_leftovers(false);
    });
  }

  // What ranks have said at the meeting counts, so its connections come to their ends first, as
  // the pipes do. A daemon that has left its rank's group may hold both open for ever: what comes
  // without a pause is passed on, then they are closed.
  void drain() {
    if (!draining_) kill_timer_.cancel();
    draining_ = true;
    if (finish_if_drained()) return;
    read_anything_ = false;
    poll_timer_.expires_after(kDrainIdle);
    poll_timer_.async_wait([this](const error_code& error) {
      if (error || finishing_) return;
      if (!read_anything_ && !held_back_) {
        joined_ = 0;
        for (const auto& stream : streams_) end_stream(*stream);
        finish_if_drained();
        return;
      }
      drain();
    });
  }

  bool finish_if_drained() {
    for (const auto& stream : streams_) {
      if (!stream->ended) return false;
    }
    if (joined_ > 0) return false;
    if (std::exchange(finishing_, true)) return true;
    link_.send(encode(FromAgent(AgentDone{})));
    return true;
  }

  void finish_if_sent() {
    if (finishing_ && link_.queued_bytes() == 0) io_.stop();
  }

  const SteadyClock clock_;
  Environment environment_;
  asio::io_context io_;
  FrameLink link_;
  asio::signal_set signals_;
  asio::steady_timer kill_timer_;
  asio::steady_timer poll_timer_;
  RankGroup ranks_;
  std::optional<PmiDonors> donors_;
  std::vector<std::unique_ptr<Stream>> streams_;
  int joined_ = 0;                                 // connections of the meeting that are open
  std::unique_ptr<RendezvousFrontEnd> front_end_;  // calls us from its thread: destroyed first
  Nanos grace_{};
  bool started_ = false;
  bool ranks_started_ = false;
  bool kill_armed_ = false;
  bool ending_ = false;
  bool draining_ = false;
  bool finishing_ = false;
  bool read_anything_ = false;
  bool held_back_ = false;  // some stream waits for the queue to become short
  int exit_code_ = 0;
};

}  // namespace

int run_agent(std::vector<std::string> environment) {
  Agent agent(std::move(environment));
  return agent.run();
}

}  // namespace kolo::internal
