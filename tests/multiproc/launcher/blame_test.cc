// Whose exit code is the job's: that of the rank that failed first, under load, although the others
// end because of it a moment later, and may be gone before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kWorker = KOLO_WORKER;

class Load {
 public:
  Load() {
    for (int i = 0; i < 2; ++i) {
      loops_.push_back(std::make_unique<Child>(
          std::vector<std::string>{"/bin/sh", "-c", "while :; do :; done"}, RunOptions{}));
    }
  }

 private:
  std::vector<std::unique_ptr<Child>> loops_;
};

int launches() { return long_tests() ? 500 : 8; }

struct Kind {
  std::string fall;
  int exit_code;
  std::string line;  // of the report's first rank
};

const Kind kKinds[] = {
    {"exit:1", 1, "exit code 1"},
    {"exit:3", 3, "exit code 3"},
    {"return:255", 255, "exit code 255"},
    {"abort:5", 5, "exit code 5"},
    {"signal:" + std::to_string(SIGSEGV), 128 + SIGSEGV, "signal 11"},
    {"signal:" + std::to_string(SIGKILL), 128 + SIGKILL, "signal 9"},
    {"signal:" + std::to_string(SIGABRT), 128 + SIGABRT, "signal 6"},
    {"signal:" + std::to_string(SIGTERM), 128 + SIGTERM, "signal 15"},
};

void expect_blamed(const Outcome& outcome, int exit_code, int rank, const std::string& how) {
  ASSERT_EQ(outcome.exit_code, exit_code) << outcome.err;
  const std::string start = "kolorun: rank " + std::to_string(rank) + " on localhost";
  ASSERT_FALSE(outcome.err.empty());
  for (const std::string& line : lines_of(outcome.err)) {
    if (!line.starts_with("kolorun:")) continue;
    ASSERT_THAT(line, ::testing::AllOf(HasSubstr(start), HasSubstr("failed first: " + how)));
    return;
  }
  FAIL() << outcome.err;
}

// Four ranks that add without a pause; one ends, and with it, at the first error, the other three:
// by an exit code, or by a signal of their own.
TEST(Blame, OfSeveralFailuresTheCauseIsNamed) {
  const Load load;
  int launch = 0;
  for (const Kind& kind : kKinds) {
    for (int i = 0; i < launches(); ++i, ++launch) {
      const int rank = launch % 4;
      const std::string survivors = i % 3 == 2 ? "signal:6" : "exit:" + std::to_string(i % 3 + 1);
      const Outcome outcome =
          run({kKolorun, "-np", "4", "--transport", launch % 2 == 0 ? "shm" : "tcp", kWorker,
               "fall", kind.fall, std::to_string(rank), survivors});
      expect_blamed(outcome, kind.exit_code, rank, kind.line);
      if (HasFatalFailure()) FAIL() << kind.fall << ", survivors " << survivors << ", launch " << i;
    }
  }
}

// Programs without kolo, whose failures are 0.1 s apart, and the one kind that is none.
TEST(Blame, TheFirstInTime) {
  const Load load;
  for (const auto& [end, exit_code] :
       std::initializer_list<std::pair<std::string, int>>{{"exit 0", 0},
                                                          {"exit 1", 1},
                                                          {"exit 3", 3},
                                                          {"exit 255", 255},
                                                          {"kill -SEGV $$", 139},
                                                          {"kill -KILL $$", 137},
                                                          {"kill -ABRT $$", 134},
                                                          {"kill -TERM $$", 143}}) {
    const std::string others = exit_code == 0 ? "exit 0" : "sleep 0.1; exit 4";
    for (int i = 0; i < launches() / 4; ++i) {
      const Outcome outcome = run({kKolorun, "-np", "3", "/bin/sh", "-c",
                                   "ulimit -c 0; [ $RANK = " + std::to_string(i % 3) + " ] || { " +
                                       others + "; }; " + end});
      ASSERT_EQ(outcome.exit_code, exit_code) << end << ", launch " << i << "\n" << outcome.err;
    }
  }
}

std::string first_line_of_kolorun(const Outcome& outcome) {
  for (const std::string& line : lines_of(outcome.err)) {
    if (line.starts_with("kolorun:")) return line;
  }
  return "";
}

// The exit code is the survivors', for want of another; the text names the cause.
TEST(Blame, ARankThatEndsWithoutAFailureAndWithoutLeaveIsNamed) {
  for (const char* transport : {"shm", "tcp"}) {
    const Outcome outcome = run(
        {kKolorun, "-np", "3", "--transport", transport, kWorker, "fall", "exit:0", "1", "exit:7"});
    EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
    EXPECT_THAT(first_line_of_kolorun(outcome),
                ::testing::MatchesRegex("kolorun: rank 1 on localhost .pid [0-9]+. was lost .exit "
                                        "code 0., as rank [02] told: .*"));
    EXPECT_THAT(outcome.err, HasSubstr("failed because of it: exit code 7"));
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("failed first")));
  }
}

TEST(Blame, AFrozenRankIsNamed) {
  for (const char* transport : {"shm", "tcp"}) {
    const Outcome outcome =
        run({kKolorun, "-np", "3", "--peer-timeout-seconds", "0.5", "--transport", transport,
             kWorker, "fall", "signal:" + std::to_string(SIGSTOP), "1", "exit:7"});
    EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
    EXPECT_THAT(
        first_line_of_kolorun(outcome),
        ::testing::MatchesRegex("kolorun: rank 1 on localhost .pid [0-9]+. was lost .ended by "
                                "kolorun: signal 15 .Terminated.., as rank [02] told: silent .*"));
  }
}

// The others have said what they had to, and ended well: nobody waits for the frozen one.
TEST(Blame, AFrozenRankOfWhichTheOthersMakeNoFailure) {
  for (const char* transport : {"shm", "tcp"}) {
    const Outcome outcome =
        run({kKolorun, "-np", "3", "--peer-timeout-seconds", "0.5", "--transport", transport,
             kWorker, "fall", "signal:" + std::to_string(SIGSTOP), "1", "exit:0"});
    EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.err;
    EXPECT_THAT(
        first_line_of_kolorun(outcome),
        ::testing::MatchesRegex("kolorun: rank 1 on localhost .pid [0-9]+. was lost .ended by "
                                "kolorun: signal 15 .Terminated.., as rank [02] told: silent .*"));
  }
}

// kolo_abort() is a word to the others; whoever says it may end well.
TEST(Blame, AnAbortIsToldInItsOwnWords) {
  const Outcome outcome = run({kKolorun, "-np", "2", kWorker, "fall", "abort:0", "1", "exit:7"});
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_THAT(first_line_of_kolorun(outcome),
              HasSubstr("the job was ended, as rank 0 told: rank 1 ended the context: enough"));
}

}  // namespace
}  // namespace kolo::test
