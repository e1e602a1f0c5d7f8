// AgentProcess: one agent as kolorun sees it: the local process that is it, or leads to it (ssh).
//
// One thread, that of the io_context, which must outlive every handler: destroyed only after the
// io_context has stopped for good. Callbacks come from the io_context.
#pragma once

#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/frame_link.h"
#include "launcher/hosts.h"
#include "launcher/job.h"
#include "launcher/remote_command.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

class AgentProcess {
 public:
  struct Events {
    std::function<void(FromAgent message)> message;
    std::function<void(const std::string& line)> complaint;  // a line of its stderr
    std::function<void(const std::string& why)> gone;        // once; `why` is for an early end
  };

  AgentProcess(boost::asio::io_context& io, Host host, Events events);

  // Errors name the host and the cure. On OK `gone` will come one day.
  Status start(const JobPlan& plan);
  void send(const ToAgent& message);
  void hang_up();             // it ends, and its ranks with it; killed if it does not
  void hold_back(bool hold);  // stop reading from it, or go on
  void try_reap();            // after SIGCHLD

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] Road road() const { return road_; }
  [[nodiscard]] bool is_gone() const { return told_gone_; }
  [[nodiscard]] const std::string& host_name() const { return host_.name; }

  // kolorun's notes on it.
  std::vector<HostAddress> addresses;
  std::set<pid_t> rank_pids;
  Nanos clock_offset = kNever;  // what to add to its times for ours; the least delay seen decides
  bool said_hello = false;
  bool is_done = false;

 private:
  void read_complaints();
  void take_complaints(std::string_view bytes);
  void on_link_end(const Status& why);
  void look_if_gone();
  void lose_patience_soon();
  std::string explain() const;

  boost::asio::io_context& io_;
  Host host_;
  Events events_;
  Road road_ = Road::kFork;
  std::string command_;  // the first word, for messages
  pid_t pid_ = 0;
  std::optional<FrameLink> link_;
  boost::asio::posix::stream_descriptor complaints_;
  boost::asio::steady_timer patience_;
  std::array<char, 4096> buffer_{};
  std::string partial_;
  std::string last_words_;  // before hello: kept for explain()
  std::string link_error_;
  std::optional<int> wait_status_;
  bool link_ended_ = false;
  bool complaints_ended_ = false;
  bool hung_up_ = false;
  bool out_of_patience_ = false;
  bool told_gone_ = false;
};

}  // namespace kolo::internal
