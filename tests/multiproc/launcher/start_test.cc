// A start that cannot succeed ends early where a rank knows that, on all ranks and with the cause
// by name; where nobody knows, at the limit that the user has set, which the text names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kWorker = KOLO_WORKER;

RunOptions limited(const char* start_timeout_ms) {
  RunOptions options;
  options.environment = {{"KOLO_START_TIMEOUT_MS", start_timeout_ms}};
  return options;
}

std::string first_line_of_kolorun(const Outcome& outcome) {
  for (const std::string& line : lines_of(outcome.err)) {
    if (line.starts_with("kolorun:")) return line;
  }
  return "";
}

// Rank 1 never calls kolo_init.
Outcome with_one_missing(const std::vector<std::string>& flags, RunOptions options) {
  std::vector<std::string> arguments = {kKolorun, "-np", "2", "--grace", "1"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(
      arguments.end(),
      {"/bin/sh", "-c", "[ $RANK = 1 ] && exec sleep 20; exec " + kWorker + " add 1 1"});
  return run(arguments, options);
}

TEST(StartTimeout, TheVariableCountsAndTheMissingAreNamed) {
  const Outcome outcome = with_one_missing({}, limited("700"));
  EXPECT_EQ(outcome.exit_code, 97) << outcome.err;
  EXPECT_GE(outcome.seconds, 0.7);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("missing rank 1 of 2"),
                                 HasSubstr("700 ms by KOLO_START_TIMEOUT_MS of rank 0")));
  EXPECT_THAT(first_line_of_kolorun(outcome),
              ::testing::MatchesRegex("kolorun: rank 1 on localhost .pid [0-9]+. kept the job from "
                                      "starting .ended by kolorun: signal 15 .*missing rank 1 .*"));
  EXPECT_THAT(outcome.err, HasSubstr("failed because of it: exit code 97"));
}

TEST(StartTimeout, TheOptionWinsOverTheVariableAndIsNamed) {
  for (const char* other : {"100", "60000"}) {
    const Outcome outcome = with_one_missing({"--start-timeout", "0.8"}, limited(other));
    EXPECT_EQ(outcome.exit_code, 97) << outcome.err;
    EXPECT_GE(outcome.seconds, 0.8);
    EXPECT_LT(outcome.seconds, 5);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("missing rank 1 of 2"),
                                   HasSubstr("800 ms by --start-timeout of kolorun"),
                                   HasSubstr("or raise --start-timeout")));
  }
}

TEST(StartTimeout, OfAgentsIsTheVariablesToo) {
  const TemporaryFolder folder;
  const std::string silent = folder.script("silent", "exec sleep 60\n");
  const Outcome outcome =
      run({kKolorun, "-H", "tomb:1", "--launcher-exec", silent, "/bin/true"}, limited("700"));
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_LT(outcome.seconds, 4);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("tomb"), HasSubstr("700 ms by KOLO_START_TIMEOUT_MS")));
}

// Of this machine, and free a moment ago.
std::string free_place() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

RunOptions by_hand(int rank, int size, const std::string& place) {
  RunOptions options = limited("20000");
  options.environment["KOLO_RANK"] = std::to_string(rank);
  options.environment["KOLO_SIZE"] = std::to_string(size);
  options.environment["KOLO_RENDEZVOUS"] = place;
  options.environment["KOLO_SECRET"] = "a-secret-of-sufficient-length";
  return options;
}

TEST(Start, ARankOfAnotherSizeIsToldToAll) {
  const std::string place = free_place();
  Child first({kWorker, "add", "1", "1"}, by_hand(0, 3, place));
  Child second({kWorker, "add", "1", "1"}, by_hand(1, 2, place));
  for (Child* child : {&first, &second}) {
    const Outcome outcome = child->wait();
    EXPECT_EQ(outcome.exit_code, 97) << outcome.err;
    EXPECT_LT(outcome.seconds, 5);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1"), HasSubstr("says the job has 2 ranks"),
                                   HasSubstr("KOLO_SIZE")));
  }
}

TEST(Start, ARankThatCannotListenIsToldToAll) {
  const std::string place = free_place();
  RunOptions wrong = by_hand(1, 3, place);
  wrong.environment["KOLO_ADDRESSES"] = "192.0.2.1";  // of nobody
  Child first({kWorker, "add", "1", "1"}, by_hand(0, 3, place));
  Child second({kWorker, "add", "1", "1"}, wrong);
  const Outcome outcome = first.wait();
  EXPECT_EQ(outcome.exit_code, 97) << outcome.err;
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("rank 1"), HasSubstr("cannot take part"), HasSubstr("192.0.2.1")));
  EXPECT_EQ(second.wait().exit_code, 97);
}

TEST(Start, ARankThatCannotListenIsTheCauseForKolorun) {
  const Outcome outcome =
      run({kKolorun, "-np", "3", "/bin/sh", "-c",
           "[ $RANK = 1 ] && export KOLO_ADDRESSES=192.0.2.1; exec " + kWorker + " add 1 1"});
  EXPECT_EQ(outcome.exit_code, 97) << outcome.err;
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(first_line_of_kolorun(outcome),
              AllOf(HasSubstr("rank 1 on localhost"), HasSubstr("failed first")))
      << outcome.err;
}

// It cannot be believed, but the others learn that somebody was refused.
TEST(Start, AWrongSecretIsNamedWithTheMissing) {
  const std::string place = free_place();
  RunOptions right = by_hand(0, 2, place);
  right.environment["KOLO_START_TIMEOUT_MS"] = "1500";
  RunOptions wrong = by_hand(1, 2, place);
  wrong.environment["KOLO_SECRET"] = "another-secret-of-such-length";
  Child first({kWorker, "add", "1", "1"}, right);
  Child second({kWorker, "add", "1", "1"}, wrong);
  const Outcome refused = second.wait();
  EXPECT_EQ(refused.exit_code, 97);
  EXPECT_LT(refused.seconds, 5);
  EXPECT_THAT(refused.err, HasSubstr("wrong secret"));
  EXPECT_THAT(first.wait().err,
              AllOf(HasSubstr("missing rank 1 of 2"), HasSubstr("1 of them for a wrong secret")));
}

// Without a launcher, places on the host follow from the ranks.
TEST(ByHand, LocalRanksAreFound) {
  const std::string place = free_place();
  Child zero({kWorker, "place"}, by_hand(0, 3, place));
  Child one({kWorker, "place"}, by_hand(1, 3, place));
  RunOptions there = by_hand(2, 3, place);
  there.environment["KOLO_HOST_NAME"] = "there";
  Child two({kWorker, "place"}, there);
  EXPECT_THAT(zero.wait().out, HasSubstr("local rank 0 of 2"));
  EXPECT_THAT(one.wait().out, HasSubstr("local rank 1 of 2"));
  const Outcome last = two.wait();
  EXPECT_THAT(last.out, HasSubstr("local rank 0 of 1")) << last.err;
  EXPECT_THAT(last.out, AllOf(HasSubstr("\"refused\":{\"not_kolo\":0,\"other_job\":0,"
                                        "\"wrong_secret\":0"),
                              Not(HasSubstr("a-secret"))));
}

}  // namespace
}  // namespace kolo::test
