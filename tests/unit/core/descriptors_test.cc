#include "core/descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

Config config_of(std::initializer_list<std::pair<const char*, const char*>> settings) {
  Config config;
  for (const auto& [key, value] : settings) EXPECT_TRUE(config.set(key, value).is_ok());
  return config;
}

TEST(Descriptors, GrowWithPeersAndStreams) {
  const std::size_t alone = descriptors_of(config_of({{"size", "1"}}));
  EXPECT_LE(alone, 32u);
  const auto member = [&](const char* transport, const char* streams) {
    return descriptors_of(config_of({{"rank", "3"},
                                     {"size", "16"},
                                     {"local_rank", "3"},
                                     {"local_size", "4"},
                                     {"launcher", "test"},
                                     {"transport", transport},
                                     {"streams", streams}}));
  };
  EXPECT_EQ(member("tcp", "2"), alone + 3 + 15 * 2 + 1);
  EXPECT_EQ(member("tcp", "5"), alone + 3 + 15 * 5 + 1);
  EXPECT_EQ(member("shm", "2"), alone + 3 + 15 * 2 + 1 + 3);
  EXPECT_EQ(member("mpi", "2"), alone + 3 + 1);
  EXPECT_EQ(member("shm+mpi", "2"), alone + 3 + 1 + 3);
  const auto root = [&](bool by_hand) {
    Config config = config_of({{"rank", "0"}, {"size", "16"}, {"transport", "tcp"}});
    if (!by_hand) {
      EXPECT_TRUE(config.set("launcher", "test").is_ok());
    }
    return descriptors_of(config);
  };
  EXPECT_EQ(root(false), alone + 15 + 15 * 2 + 15);
  EXPECT_EQ(root(true), alone + 15 + 15 * 2 + 15 + 16);  // it serves the rendezvous, too
}

// In a process of its own, whose limits may be lowered for good.
void in_a_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

bool limit_to(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

rlim_t soft_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST(Descriptors, TheSoftLimitIsRaisedOnlyWhereItMustBe) {
  const Config config = config_of({{"rank", "1"}, {"size", "16"}, {"transport", "tcp"}});
  in_a_child([&] {
    return limit_to(400, 1000) && make_room_for_descriptors(config) && soft_limit() == 400;
  });
  in_a_child([&] {
    return limit_to(40, 1000) && make_room_for_descriptors(config) &&
           soft_limit() == 40 + descriptors_of(config);
  });
  in_a_child([&] {  // as far as it may
    return limit_to(40, 90) && make_room_for_descriptors(config) && soft_limit() == 90;
  });
}

TEST(Descriptors, AHardLimitIsNamedWithTheNeed) {
  const Config config = config_of({{"rank", "1"}, {"size", "16"}, {"transport", "tcp"}});
  in_a_child([&] {
    int last = -1;
    for (int i = 0; i < 7; ++i) last = ::open("/dev/null", O_RDONLY);
    if (last < 0 || !limit_to(40, 40)) return false;
    const Status status = make_room_for_descriptors(config);
    const std::string own = std::to_string(descriptors_of(config));
    EXPECT_EQ(status.code(), StatusCode::kResource);
    EXPECT_THAT(status.text(), HasSubstr("limit is 40"));
    EXPECT_THAT(status.text(), HasSubstr("rank 1 of 16 needs " + own));
    return soft_limit() == 40 && !::testing::Test::HasFailure();
  });
}

}  // namespace
}  // namespace kolo::internal
