// The C boundary over a stand-in Context: process sets, join, counts and outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/api/fake_context.h"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

TEST_F(BoundaryTest, ProcessSetsAndJoinReachTheContext) {
  const std::int32_t given[] = {3, 0, 2};
  std::int32_t number = -1;
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "tail";
  ASSERT_EQ(kolo_pset_create(context_, given, 3, &number, &options, nullptr), KOLO_OK);
  EXPECT_EQ(script_.last.kind, OpKind::kCreateSet);
  EXPECT_EQ(script_.last.number, &number);
  EXPECT_EQ(kolo_pset_create(context_, given, 3, nullptr, nullptr, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_pset_create(context_, nullptr, 3, &number, nullptr, nullptr),
            KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_pset_create(context_, given, 5, &number, nullptr, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("the job has 4 ranks"));
  ASSERT_EQ(kolo_pset_destroy(context_, 5, nullptr, nullptr), KOLO_OK);
  EXPECT_EQ(script_.last.kind, OpKind::kDestroySet);
  EXPECT_EQ(kolo_pset_destroy(context_, 5, &options, nullptr), KOLO_INVALID_ARGUMENT);  // a name
  std::int32_t ranks[2] = {-1, -1};
  std::size_t count = 0;
  ASSERT_EQ(kolo_pset_ranks(context_, 5, ranks, 2, &count), KOLO_OK);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(ranks[1], 2);
  EXPECT_EQ(kolo_pset_ranks(context_, 5, nullptr, 0, &count), KOLO_OK);
  EXPECT_EQ(kolo_pset_ranks(context_, 5, nullptr, 1, &count), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_pset_ranks(context_, 6, ranks, 2, &count), KOLO_INVALID_ARGUMENT);
  std::int32_t last = -1;
  options = KOLO_OPTIONS_INIT;
  options.pset = 5;
  ASSERT_EQ(kolo_join(context_, &last, &options, nullptr), KOLO_OK);
  EXPECT_EQ(last, 3);
  EXPECT_EQ(script_.last.process_set, 5);
  kolo_request request = KOLO_REQUEST_NULL;
  ASSERT_EQ(kolo_join(context_, nullptr, nullptr, &request), KOLO_OK);
  EXPECT_EQ(request, 20U);
  options.persistent = 1;
  EXPECT_EQ(kolo_join(context_, nullptr, &options, &request), KOLO_INVALID_ARGUMENT);
}

TEST_F(BoundaryTest, CountsAndOutputsReachTheContext) {
  const std::size_t sends[] = {1, 2, 3, 4};
  const std::size_t receives[] = {4, 3, 2, 1};
  kolo_result result = {};
  kolo_options options = KOLO_OPTIONS_INIT;
  options.send_counts = sends;
  options.recv_counts = receives;
  options.result = &result;
  ASSERT_EQ(kolo_alltoall(context_, data_, data_, 10, KOLO_FLOAT32, &options, nullptr), KOLO_OK);
  EXPECT_EQ(script_.last.kind, OpKind::kAlltoall);
  EXPECT_EQ(script_.last.send_counts, sends);
  EXPECT_EQ(script_.last.receive_counts, receives);
  EXPECT_EQ(script_.last.participants, &result.participants);
  EXPECT_EQ(script_.last.nonfinite, &result.nonfinite);
  ASSERT_EQ(
      kolo_reduce_scatter(context_, data_, data_, 1, KOLO_FLOAT32, KOLO_MAX, nullptr, nullptr),
      KOLO_OK);
  EXPECT_EQ(script_.last.kind, OpKind::kReduceScatter);
  EXPECT_EQ(script_.last.op, ReduceOp::kMax);
  options = KOLO_OPTIONS_INIT;
  options.allocate = 1;
  kolo_request request = KOLO_REQUEST_NULL;
  ASSERT_EQ(kolo_allgather(context_, data_, nullptr, 4, KOLO_FLOAT32, &options, &request), KOLO_OK);
  EXPECT_TRUE(script_.last.allocate);
  void* output = nullptr;
  std::size_t count = 0;
  const std::size_t* counts = nullptr;
  ASSERT_EQ(kolo_request_output(context_, request, &output, &count, &counts), KOLO_OK);
  EXPECT_EQ(output, script_.memory);
  EXPECT_EQ(count, 6U);
  EXPECT_EQ(counts, script_.counts);
  EXPECT_EQ(kolo_request_output(context_, request, &output, &count, nullptr), KOLO_OK);
  EXPECT_EQ(kolo_request_output(context_, request, nullptr, &count, nullptr),
            KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_request_output(context_, 99, &output, &count, nullptr), KOLO_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace kolo::internal
