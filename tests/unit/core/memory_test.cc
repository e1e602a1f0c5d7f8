// kolo_alloc's memory, and tensors in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/core/ranks.h"

namespace kolo::internal {
namespace {

std::int32_t* allocate(Context& context, std::size_t count) {
  const auto memory = context.allocate(count * sizeof(std::int32_t));
  EXPECT_TRUE(memory.is_ok()) << memory.status().to_string();
  return memory ? static_cast<std::int32_t*>(*memory) : nullptr;
}

std::uint64_t bytes_copied(Context& context) {
  const std::string key = "\"bytes_copied\":";
  const std::string info = context.info_json();
  return std::stoull(info.substr(info.find(key) + key.size()));
}

Submission sum(std::string_view name, const std::int32_t* input, std::int32_t* output,
               std::size_t count) {
  Submission submission;
  submission.name = name;
  submission.input = input;
  submission.output = output;
  submission.count = count;
  submission.dtype = DataType::kInt32;
  return submission;
}

class Memory : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(SharedAndNot, Memory, testing::Values("shm", "tcp"));

TEST_P(Memory, TensorsInItAreReducedInAndOutOfPlace) {
  constexpr std::size_t kCount = 300'001;
  Ranks ranks(3, {{"transport", GetParam()}});
  ranks.on_all([&](Context& context) {
    std::int32_t* const a = allocate(context, kCount);
    std::int32_t* const b = allocate(context, kCount);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    for (int round = 0; round < 4; ++round) {
      for (std::size_t i = 0; i < kCount; ++i) a[i] = static_cast<std::int32_t>(i) * context.rank();
      ASSERT_TRUE(context.run(sum("out", a, b, kCount)).is_ok());
      ASSERT_TRUE(context.run(sum("in", a, a, kCount)).is_ok());
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(b[i], static_cast<std::int32_t>(i) * 3);
      ASSERT_TRUE(std::equal(a, a + kCount, b));
    }
    EXPECT_TRUE(context.free(a).is_ok());
    expect_code(context.free(a), StatusCode::kInvalidArgument);
    expect_code(context.free(b + 1), StatusCode::kInvalidArgument);
    EXPECT_TRUE(context.free(b).is_ok());
  });
}

// Where all ranks share it, tensors in it are not copied; if one rank's is elsewhere, they are.
TEST(SharedMemory, LargeTensorsInItAreNotPacked) {
  constexpr std::size_t kCount = 1'000'000;
  Ranks ranks(2, {{"transport", "shm"}});
  ranks.on_all([&](Context& context) {
    std::int32_t* const shared = allocate(context, kCount);
    ASSERT_NE(shared, nullptr);
    std::fill_n(shared, kCount, 1);
    std::vector<std::int32_t> own(kCount, 1);
    const std::uint64_t at_first = bytes_copied(context);
    ASSERT_TRUE(context.run(sum("shared", shared, shared, kCount)).is_ok());
    const std::uint64_t half =
        kCount * sizeof(std::int32_t) / 2;  // the other's share of the result
    EXPECT_LE(bytes_copied(context) - at_first, half + 4096);
    std::int32_t* const mixed = context.rank() == 0 ? shared : own.data();
    std::fill_n(mixed, kCount, 2);
    ASSERT_TRUE(context.run(sum("mixed", mixed, mixed, kCount)).is_ok());
    EXPECT_TRUE(std::all_of(mixed, mixed + kCount, [](std::int32_t x) { return x == 4; }));
    EXPECT_TRUE(context.free(shared).is_ok());
  });
}

TEST(SharedMemory, MoreThanThereIsIsAClearError) {
  Ranks ranks(2, {{"transport", "shm"}, {"shm_bytes", "67108864"}});
  ranks.on_all([&](Context& context) {
    const auto memory = context.allocate(std::size_t{1} << 30);
    expect_code(memory.status(), StatusCode::kResource);
    EXPECT_NE(memory.status().text().find("1073741824"), std::string::npos)
        << memory.status().text();
    probe(context);
  });
}

// Two jobs that somebody gave one name, at the same time on one host.
TEST(SharedMemory, JobsOfOneNameDoNotMeet) {
  Ranks one(2, {{"transport", "shm"}});
  Ranks other(3, {{"transport", "shm"}});
  one.on_all([](Context& context) { probe(context); });
  other.on_all([](Context& context) { probe(context); });
  EXPECT_EQ(one[0].size(), 2);
  EXPECT_EQ(other[0].size(), 3);
}

// Freed memory is used again: a loop does not eat the segment.
TEST(SharedMemory, IsUsedAgain) {
  Ranks ranks(2, {{"transport", "shm"}, {"shm_bytes", "67108864"}});
  ranks.on_all([&](Context& context) {
    for (int round = 0; round < 50; ++round) {
      std::int32_t* const memory = allocate(context, 2'000'000);
      ASSERT_NE(memory, nullptr);
      memory[0] = round;
      EXPECT_TRUE(context.free(memory).is_ok());
    }
    probe(context);
  });
}

}  // namespace
}  // namespace kolo::internal
