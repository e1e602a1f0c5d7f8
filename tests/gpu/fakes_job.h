// A job whose ranks are processes (fakes_actor.cc), each with its own faults, and what became of
// them. Nothing is left behind; a rank that does not end is killed after a minute.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes.h"
#include "tests/unit/fakegpu/child.h"

namespace gpu_test {

struct RankPlan {
  std::vector<std::string> variables;
  std::vector<std::string> arguments;
};

struct Said {
  std::string who;
  int status = -1;
  long ms = 0;
  std::string text;
};

struct Outcome {
  fakegpu::Ended ended;
  std::vector<Said> said;

  [[nodiscard]] const Said* find(const std::string& who) const {
    for (const Said& each : said) {
      if (each.who == who) return &each;
    }
    return nullptr;
  }
};

inline std::vector<Said> parse(const std::string& output) {
  std::vector<Said> all;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("SAID ", 0) != 0) continue;
    std::istringstream words(line.substr(5));
    Said said;
    std::string skipped;
    words >> said.who >> said.status >> skipped >> said.ms >> skipped;
    std::getline(words, said.text);
    all.push_back(said);
  }
  return all;
}

using Plans = std::vector<RankPlan>;

// What happens to a rank that long after all are ready for their first operation.
struct Blow {
  enum class Kind { kNone, kKill, kFreeze };  // frozen until all others have ended
  Kind kind = Kind::kNone;
  std::size_t rank = 0;
  int after_ms = 0;
};
inline Blow killed(std::size_t rank, int after_ms) { return {Blow::Kind::kKill, rank, after_ms}; }
inline Blow frozen(std::size_t rank, int after_ms) { return {Blow::Kind::kFreeze, rank, after_ms}; }

class Job {
 public:
  explicit Job(const Plans& plans, const Blow& blow = {}) {
    const int size = static_cast<int>(plans.size());
    const std::string secret = "a secret of sufficient length";
    auto server = kolo::internal::RendezvousServer::start("127.0.0.1:0", size, {"faults", secret},
                                                          std::chrono::seconds(20));
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    if (!server.is_ok()) return;
    std::vector<std::unique_ptr<fakegpu::Child>> children;
    for (int rank = 0; rank < size; ++rank) {
      const RankPlan& plan = plans[static_cast<std::size_t>(rank)];
      const std::string number = std::to_string(rank);
      std::vector<std::string> variables = plan.variables;
      for (const std::string& variable :
           {"KOLO_RANK=" + number, "KOLO_SIZE=" + std::to_string(size), "KOLO_LOCAL_RANK=" + number,
            "KOLO_LOCAL_SIZE=" + std::to_string(size), std::string("KOLO_LAUNCHER=test"),
            std::string("KOLO_JOB=faults"), "KOLO_SECRET=" + secret,
            "KOLO_RENDEZVOUS=" + (*server)->endpoint(), "FAKEGPU_DEVICE_OFFSET=" + number,
            std::string("FAKEGPU_DEVICES=1"), std::string("KOLO_START_TIMEOUT_MS=3000"),
            std::string("KOLO_PEER_TIMEOUT_MS=2000")}) {
        variables.push_back(variable);
      }
      children.push_back(
          std::make_unique<fakegpu::Child>(GPU_FAKES_ACTOR, plan.arguments, variables));
    }
    strike(children, blow);
    outcomes_.resize(children.size());
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      if (blow.kind != Blow::Kind::kFreeze || rank != blow.rank) finish(*children[rank], rank);
    }
    if (blow.kind != Blow::Kind::kFreeze) return;
    children[blow.rank]->thaw();
    finish(*children[blow.rank], blow.rank);
  }

  [[nodiscard]] const Outcome& of(std::size_t rank) const { return outcomes_.at(rank); }

  // That all three waiters of the rank were told one of the statuses, soon, and nothing is left.
  void expect(std::size_t rank, const std::vector<int>& statuses, long limit_ms,
              const std::string& text = "") const {
    const Outcome& outcome = of(rank);
    const std::string all = "rank " + std::to_string(rank) + " said:\n" + outcome.ended.output;
    EXPECT_EQ(outcome.ended.exit_code, 0) << all;
    for (const char* who : {"block", "wait", "stream"}) {
      const Said* said = outcome.find(who);
      ASSERT_NE(said, nullptr) << who << "; " << all;
      EXPECT_THAT(statuses, testing::Contains(said->status)) << who << "; " << all;
      EXPECT_LT(said->ms, limit_ms) << who << "; " << all;
      EXPECT_THAT(said->text, testing::HasSubstr(text)) << who << "; " << all;
    }
  }
  // That of another rank, whose first operation may have been good already.
  void expect_sooner_or_later(std::size_t rank, const std::vector<int>& statuses) const {
    const Said* said = of(rank).find("first");
    if (said != nullptr && said->status == KOLO_OK) {
      return expect(rank, statuses, 8000);
    }
    expect_first(rank, statuses, 8000);
  }
  // The same of the very first operation, which makes the communicator.
  void expect_first(std::size_t rank, const std::vector<int>& statuses, long limit_ms) const {
    const Outcome& outcome = of(rank);
    const std::string all = "rank " + std::to_string(rank) + " said:\n" + outcome.ended.output;
    EXPECT_EQ(outcome.ended.exit_code, 0) << all;
    const Said* said = outcome.find("first");
    ASSERT_NE(said, nullptr) << all;
    EXPECT_THAT(statuses, testing::Contains(said->status)) << all;
    EXPECT_LT(said->ms, limit_ms) << all;
  }

  // That whoever waited on the rank was told one of the statuses, in a text with this in it: the
  // first operation's waiter, or the three that come after one that was good. That nothing was
  // left, or touched afterwards.
  void expect_told(std::size_t rank, const std::vector<int>& statuses, long limit_ms,
                   const std::string& text) const {
    const Outcome& outcome = of(rank);
    const std::string all = "rank " + std::to_string(rank) + " said:\n" + outcome.ended.output;
    EXPECT_EQ(outcome.ended.exit_code, 0) << all;
    for (const char* wrong : {"touched", "late", "plan"}) {
      EXPECT_EQ(outcome.find(wrong), nullptr) << all;
    }
    EXPECT_THAT(outcome.ended.output, testing::Not(testing::HasSubstr("misuse (")));
    const Said* first = outcome.find("first");
    ASSERT_NE(first, nullptr) << all;
    const std::vector<std::string> waiters =
        first->status == KOLO_OK ? std::vector<std::string>{"block", "wait", "stream"}
                                 : std::vector<std::string>{"first"};
    for (const std::string& who : waiters) {
      const Said* said = outcome.find(who);
      ASSERT_NE(said, nullptr) << who << "; " << all;
      EXPECT_THAT(statuses, testing::Contains(said->status)) << who << "; " << all;
      EXPECT_LT(said->ms, limit_ms) << who << "; " << all;
      if (said->status != KOLO_NOT_INITIALIZED) {
        EXPECT_THAT(said->text, testing::ContainsRegex(text)) << who << "; " << all;
      }
    }
  }

 private:
  static void strike(std::vector<std::unique_ptr<fakegpu::Child>>& children, const Blow& blow) {
    if (blow.kind == Blow::Kind::kNone) return;
    for (auto& child : children) EXPECT_TRUE(child->await_line("READY"));
    std::this_thread::sleep_for(std::chrono::milliseconds(blow.after_ms));
    fakegpu::Child& struck = *children[blow.rank];
    blow.kind == Blow::Kind::kKill ? struck.kill() : struck.freeze();
  }
  void finish(fakegpu::Child& child, std::size_t rank) {
    outcomes_[rank].ended = child.wait();
    outcomes_[rank].said = parse(outcomes_[rank].ended.output);
  }

  std::vector<Outcome> outcomes_;
};

}  // namespace gpu_test
