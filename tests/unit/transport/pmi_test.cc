// PMI-1: its lines, the process mapping, and a meeting through a launcher that is a thread here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "transport/pmi/pmi_client.h"
#include "transport/pmi/pmi_meeting.h"

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PmiLine, IsReadByKey) {
  const auto line = PmiLine::parse("cmd=get_result rc=0 msg=success value=a,b=1");
  ASSERT_TRUE(line.is_ok());
  EXPECT_EQ(line->command(), "get_result");
  EXPECT_EQ(line->find("value"), "a,b=1");
  EXPECT_EQ(line->find("nothing"), std::nullopt);
  EXPECT_TRUE(line->is_success());
  EXPECT_EQ(line->number("rc", 10), 0);
  EXPECT_EQ(line->number("msg", 10), std::nullopt);
  EXPECT_FALSE(PmiLine::parse("cmd=get_result rc=-1 msg=no value=unknown")->is_success());
}

TEST(PmiLine, RefusesWhatIsNone) {
  for (const char* text : {"", "   ", "rc=0 cmd=x", "hello", "=x", "cmd=a\tb", "cmd=a\x80"}) {
    const auto line = PmiLine::parse(text);
    ASSERT_FALSE(line.is_ok()) << text;
    EXPECT_THAT(line.status().text(), HasSubstr("no line of PMI-1"));
  }
  EXPECT_FALSE(PmiLine::parse("cmd=" + std::string(kMaxPmiLineBytes, 'x')).is_ok());
  std::string many = "cmd=x";
  for (int i = 0; i < 100; ++i) many += " a=1";
  EXPECT_FALSE(PmiLine::parse(many).is_ok());
}

TEST(PmiMapping, GivesEachRankItsHostInTheOrderOfFirstRanks) {
  EXPECT_THAT(*parse_process_mapping("(vector,(0,1,1))", 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(*parse_process_mapping("(vector,(0,2,2))", 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(*parse_process_mapping("(vector,(0,2,1))", 4), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(*parse_process_mapping("(vector,(5,1,2),(3,2,1))", 5), ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(*parse_process_mapping("(vector,(0,1,1000))", 2), ElementsAre(0, 0));
}

TEST(PmiMapping, RefusesWhatIsNone) {
  for (const char* text : {"", "(vector)", "(vector,)", "(vector,(0,0,1))", "(vector,(0,1,0))",
                           "(vector,(0,1))", "(vector,(0,1,1)", "(vector,(0,1,1)) ",
                           "(vector,(-1,1,1))", "(vector,(0,99999999999,1))", "matrix"}) {
    const auto hosts = parse_process_mapping(text, 4);
    ASSERT_FALSE(hosts.is_ok()) << text;
    EXPECT_THAT(hosts.status().text(), HasSubstr("process mapping"));
  }
  EXPECT_FALSE(parse_process_mapping("(vector,(0,1,1))", 0).is_ok());
}

TEST(PmiPlaceName, IsADescriptor) {
  EXPECT_EQ(pmi_fd_of("pmi:6"), 6);
  EXPECT_EQ(pmi_fd_of("pmi:"), std::nullopt);
  EXPECT_EQ(pmi_fd_of("pmi:x"), std::nullopt);
  EXPECT_EQ(pmi_fd_of("host:6"), std::nullopt);
}

// Answers ranks one after the other, as a launcher does.
class Launcher {
 public:
  Launcher(int size, std::string mapping) : mapping_(std::move(mapping)) {
    for (int rank = 0; rank < size; ++rank) {
      int fds[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
      ranks_.emplace_back(fds[0]);
      own_.emplace_back(fds[1]);
    }
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  }
  ~Launcher() {
    for (const UniqueFd& fd : own_) ::shutdown(fd.get(), SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
  }
  [[nodiscard]] int fd(std::size_t rank) const { return ranks_[rank].get(); }
  void answer_always(std::string line) {
    const std::lock_guard lock(mutex_);
    always_ = std::move(line);
  }

 private:
  void serve(std::size_t rank) {
    std::string line;
    char c = 0;
    while (::read(own_[rank].get(), &c, 1) == 1) {
      line += c;
      if (c == '\n') answer(rank, std::exchange(line, ""));
    }
  }
  void say(std::size_t rank, const std::string& line) {
    if (::write(own_[rank].get(), line.data(), line.size()) < 0) return;
  }
  void answer(std::size_t rank, const std::string& line) {
    const std::lock_guard lock(mutex_);
    const auto request = PmiLine::parse(line.substr(0, line.size() - 1));
    if (!always_.empty()) return say(rank, always_);
    if (!request) return say(rank, "cmd=bad_request\n");
    const std::string command(request->command());
    if (command == "init") {
      say(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    } else if (command == "get_maxes") {
      say(rank, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    } else if (command == "get_my_kvsname") {
      say(rank, "cmd=my_kvsname kvsname=kvs_0\n");
    } else if (command == "put") {
      waiting_[std::string(*request->find("key"))] = *request->find("value");
      say(rank, "cmd=put_result rc=0 msg=success\n");
    } else if (command == "get") {
      const std::string key(*request->find("key"));
      if (key == "PMI_process_mapping" && !mapping_.empty()) store_[key] = mapping_;
      if (store_.contains(key))
        say(rank, "cmd=get_result rc=0 msg=success value=" + store_[key] + "\n");
      else
        say(rank, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    } else if (command == "barrier_in" && ++arrived_ == own_.size()) {
      arrived_ = 0;
      store_.merge(waiting_);  // like hydra, which shows what is put from the barrier on
      for (std::size_t r = 0; r < own_.size(); ++r) say(r, "cmd=barrier_out\n");
    } else if (command == "finalize") {
      say(rank, "cmd=finalize_ack\n");
    }
  }

  std::mutex mutex_;
  const std::string mapping_;
  std::string always_;
  std::map<std::string, std::string> store_;
  std::map<std::string, std::string> waiting_;
  std::size_t arrived_ = 0;
  std::vector<UniqueFd> ranks_;
  std::vector<UniqueFd> own_;
  std::vector<std::thread> threads_;
};

std::vector<Result<PmiPlace>> meet(const Launcher& launcher, int size) {
  std::vector<Result<PmiPlace>> places;
  for (int i = 0; i < size; ++i) places.emplace_back(aborted("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      places[r] = meet_by_pmi(launcher.fd(r), rank, size, {"127.0.0.1"}, 10s);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return places;
}

TEST(PmiMeeting, AllRanksLearnOneSecretAndOneEndpointEachTimeTheyMeet) {
  const Launcher launcher(4, "(vector,(0,2,1))");
  std::string last_secret;
  for (int round = 0; round < 3; ++round) {
    const auto places = meet(launcher, 4);
    for (const auto& place : places) {
      ASSERT_TRUE(place.is_ok()) << place.status().to_string();
      EXPECT_EQ(place->endpoint, places[0]->server->endpoint());
      EXPECT_EQ(place->identity.secret, places[0]->identity.secret);
      EXPECT_EQ(place->identity.job, places[0]->identity.job);
      EXPECT_EQ(place->host_count, 2);
      EXPECT_EQ(place->local_size, 2);
    }
    EXPECT_EQ(places[0]->identity.secret.size(), 64u);
    EXPECT_NE(places[0]->identity.secret, std::exchange(last_secret, places[0]->identity.secret));
    EXPECT_EQ(places[2]->local_rank, 1);
    EXPECT_EQ(places[3]->host_index, 1);
    EXPECT_EQ(places[1]->server, nullptr);
  }
}

TEST(PmiMeeting, OneHostListensOnLoopback) {
  const Launcher launcher(1, "(vector,(0,1,1))");
  const auto place = meet_by_pmi(launcher.fd(0), 0, 1, {}, 10s);
  ASSERT_TRUE(place.is_ok()) << place.status().to_string();
  EXPECT_THAT(place->addresses, ElementsAre("127.0.0.1"));
}

TEST(PmiMeeting, WithoutAMappingIsRefused) {
  const Launcher launcher(1, "");
  const auto place = meet_by_pmi(launcher.fd(0), 0, 1, {}, 10s);
  ASSERT_FALSE(place.is_ok());
  EXPECT_EQ(place.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(place.status().text(), HasSubstr("kolorun"));
}

TEST(PmiMeeting, ARankThatDoesNotComeIsWaitedForOnlySoLong) {
  const Launcher launcher(2, "(vector,(0,1,2))");
  const auto place = meet_by_pmi(launcher.fd(0), 0, 2, {}, 300ms);
  ASSERT_FALSE(place.is_ok());
  EXPECT_EQ(place.status().code(), StatusCode::kTimedOut);
}

TEST(PmiClient, WrongAnswersAreErrors) {
  Launcher launcher(1, "(vector,(0,1,1))");
  for (const char* answer :
       {"nonsense\n", "cmd=other rc=0\n", "cmd=response_to_init pmi_version=2 rc=0\n",
        "cmd=response_to_init pmi_version=1 rc=0\ncmd=more\n"}) {
    launcher.answer_always(answer);
    const auto client = PmiClient::greet(launcher.fd(0), 5s);
    ASSERT_FALSE(client.is_ok()) << answer;
    EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  }
  launcher.answer_always(std::string(3 * kMaxPmiLineBytes, 'x'));
  EXPECT_FALSE(PmiClient::greet(launcher.fd(0), 5s).is_ok());
}

TEST(PmiClient, SaysWhatIsNoSocketOfALauncher) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd read_end(fds[0]);
  const UniqueFd write_end(fds[1]);
  const auto client = PmiClient::greet(read_end.get(), 1s);
  ASSERT_FALSE(client.is_ok());
  EXPECT_THAT(client.status().text(), HasSubstr("PMI_FD"));
}

TEST(PmiClient, ALauncherThatHangsUpIsAnError) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const UniqueFd here(fds[0]);
  ::close(fds[1]);
  const auto client = PmiClient::greet(here.get(), 1s);
  ASSERT_FALSE(client.is_ok());
  EXPECT_EQ(client.status().code(), StatusCode::kResource);
}

TEST(PmiClient, ChecksWhatItPuts) {
  const Launcher launcher(1, "(vector,(0,1,1))");
  auto client = PmiClient::greet(launcher.fd(0), 5s);
  ASSERT_TRUE(client.is_ok());
  EXPECT_TRUE(client->put("key", "value").is_ok());
  EXPECT_FALSE(client->put("key", "two words").is_ok());
  EXPECT_FALSE(client->put("key", std::string(1024, 'x')).is_ok());
  EXPECT_FALSE(client->put("", "value").is_ok());
}

}  // namespace
}  // namespace kolo::internal
