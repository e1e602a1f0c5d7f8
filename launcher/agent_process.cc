#include "launcher/agent_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "launcher/program.h"
#include "launcher/spawn.h"
#include "launcher/verdict.h"

namespace kolo::internal {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr auto kPatience = 1s;  // between the end of an agent's process and that of its pipes
constexpr std::size_t kMaxLastWords = 2000;
}  // namespace

AgentProcess::AgentProcess(asio::io_context& io, Host host, Events events)
    : io_(io), host_(std::move(host)), events_(std::move(events)), complaints_(io), patience_(io) {}

Status AgentProcess::start(const JobPlan& plan) {
  road_ = road_to(host_, plan.options, plan.own_name);
  const std::string agent = road_ == Road::kFork || plan.options.agent_path.empty()
                                ? plan.own_path
                                : plan.options.agent_path;
  SpawnRequest request;
  request.arguments = agent_command(road_, host_, plan.options, agent);
  request.environment = plan.environment;
  command_ = request.arguments[0];
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  for (const auto* pipe : {&in, &out, &err}) {
    if (!*pipe) return pipe->status();
  }
  request.in = in->read.get();
  request.out = out->write.get();
  request.err = err->write.get();
  const Spawned child = spawn(request);
  if (child.error_number != 0) {
    const char* cure = road_ == Road::kSsh ? "install openssh-client, or name another program with "
                                             "--launcher-exec"
                                           : "correct --launcher-exec";
    return resource_error("cannot start an agent on host " + host_.name + ": " +
                          explain_exec_error(command_, child.error_number).error + "; " + cure);
  }
  pid_ = child.pid;
  link_.emplace(io_, std::move(out->read), std::move(in->write), kAgentGreeting,
                FrameLink::Events{[this](std::string_view frame) {
                                    auto message = decode_from_agent(frame);
                                    if (message) return events_.message(*std::move(message));
                                    link_error_ = message.status().text();
                                    hang_up();
                                  },
                                  [this](const Status& why) { on_link_end(why); }, nullptr});
  link_->start();
  complaints_.assign(err->read.release());
  read_complaints();
  return Status::ok();
}

void AgentProcess::send(const ToAgent& message) {
  if (!link_ || link_ended_) return;
  std::string bytes = encode(message);
  link_->send(bytes);
  wipe(bytes);
}

void AgentProcess::hang_up() {
  if (!link_ || std::exchange(hung_up_, true)) return;
  link_->close_write();
  lose_patience_soon();
}

void AgentProcess::lose_patience_soon() {
  patience_.expires_after(kPatience);
  patience_.async_wait([this](const error_code& error) {
    if (error) return;
    out_of_patience_ = true;
    if (!wait_status_) ::kill(-pid_, SIGKILL);
    look_if_gone();
  });
}

void AgentProcess::hold_back(bool hold) {
  if (!link_ || link_ended_) return;
  if (hold)
    link_->pause();
  else
    link_->resume();
}

void AgentProcess::read_complaints() {
  complaints_.async_read_some(asio::buffer(buffer_),
                              [this](const error_code& error, std::size_t bytes) {
                                if (error) {
                                  complaints_ended_ = true;
                                  take_complaints(partial_.empty() ? "" : "\n");
                                  return look_if_gone();
                                }
                                take_complaints(std::string_view(buffer_.data(), bytes));
                                read_complaints();
                              });
}

void AgentProcess::take_complaints(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n' && partial_.size() < kMaxLastWords) {
      if (c != '\r') partial_ += c;
      continue;
    }
    if (!partial_.empty() && said_hello) {
      events_.complaint("host " + host_.name + ": " + partial_);
    } else if (!partial_.empty() && last_words_.size() < kMaxLastWords) {
      last_words_ += (last_words_.empty() ? "" : "; ") + partial_;
    }
    partial_.clear();
  }
}

void AgentProcess::on_link_end(const Status& why) {
  link_ended_ = true;
  if (!why && link_error_.empty()) link_error_ = why.text();
  link_->close_write();
  look_if_gone();
}

void AgentProcess::try_reap() {
  if (pid_ <= 0 || wait_status_) return;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return;
  wait_status_ = status;
  look_if_gone();
}

// Gone is who has ended and whose pipes have. One of these may lag behind for ever: a helper of
// ssh that keeps a pipe, or a process that closed its pipes and goes on.
void AgentProcess::look_if_gone() {
  if (told_gone_ || (!wait_status_ && !link_ended_ && !out_of_patience_)) return;
  const bool all = wait_status_ && link_ended_ && complaints_ended_;
  if (!all && !out_of_patience_) return lose_patience_soon();
  told_gone_ = true;
  patience_.cancel();
  events_.gone(explain());
}

std::string AgentProcess::explain() const {
  const std::string end = wait_status_ ? describe_status(*wait_status_) : "a closed connection";
  const std::string words = last_words_.empty() ? "" : ": " + last_words_;
  if (said_hello) {
    return "the agent on host " + host_.name + " ended unexpectedly with " + end +
           (link_error_.empty() ? "" : " (" + link_error_ + ")") + "; its ranks are lost";
  }
  std::string cure = "see that kolorun is installed there";
  if (road_ == Road::kSsh) {
    cure = "see that 'ssh " + host_.name +
           " true' works without a password, and that kolorun has the same path there "
           "(or give --agent-path)";
  } else if (road_ == Road::kCommand) {
    cure = "see that '" + command_ + "' of --launcher-exec runs a command on this host";
  }
  return "no agent starts on host " + host_.name + ", '" + command_ + "' ended with " + end +
         words + "; " + cure;
}

}  // namespace kolo::internal
