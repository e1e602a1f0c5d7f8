// Every local reason to refuse a submission, and that good ones pass.
#include "core/validate.h"

#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::array<std::byte, 4096> memory_a;
std::array<std::byte, 4096> memory_b;

Submission allreduce() {
  Submission s;
  s.name = "layer1.weight";
  s.input = memory_a.data();
  s.output = memory_b.data();
  s.count = 8;
  return s;
}

Submission of_kind(OpKind kind) {
  Submission s = allreduce();
  s.kind = kind;
  return s;
}

void expect_refused(const Submission& s, const std::string& words, int size = 2, int rank = -1) {
  const Status status = validate(s, size, rank);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  EXPECT_THAT(status.text(), AllOf(HasSubstr("layer1.weight"), HasSubstr(words)));
}

void expect_fine(const Submission& s, int size = 2, int rank = -1) {
  const Status status = validate(s, size, rank);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST(ValidateTest, GoodSubmissionsPass) {
  expect_fine(allreduce());
  expect_fine(of_kind(OpKind::kAllgather));
  expect_fine(of_kind(OpKind::kBroadcast));
  Submission barrier;
  barrier.kind = OpKind::kBarrier;
  expect_fine(barrier);
  Submission empty;
  expect_fine(empty);
}

TEST(ValidateTest, EveryPairOfTypeAndOperator) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      Submission s = allreduce();
      s.dtype = static_cast<DataType>(t);
      s.op = static_cast<ReduceOp>(o);
      const bool is_fp8 = t == 10 || t == 11;
      const bool is_bool_avg = t == 12 && o == 4;
      if (is_fp8) {
        expect_refused(s, "not defined on f8");
      } else if (is_bool_avg) {
        expect_refused(s, "avg is not defined on bool");
      } else {
        expect_fine(s);
      }
    }
  }
}

TEST(ValidateTest, UnknownNumbers) {
  for (const int number : {-1, 15, 1000, std::numeric_limits<int>::max()}) {
    for (const OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast}) {
      Submission s = of_kind(kind);
      s.dtype = static_cast<DataType>(number);
      expect_refused(s, "unknown data type " + std::to_string(number));
    }
  }
  for (const int number : {-1, 5, 17, 1000}) {
    Submission s = allreduce();
    s.op = static_cast<ReduceOp>(number);
    expect_refused(s, "unknown reduction operator " + std::to_string(number));
  }
}

TEST(ValidateTest, Fp8Moves) {
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kBroadcast}) {
    Submission s = of_kind(kind);
    s.dtype = DataType::kFloat8E4m3;
    expect_fine(s);
  }
}

TEST(ValidateTest, NullPointers) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast}) {
    Submission s = of_kind(kind);
    s.input = nullptr;
    expect_refused(s, "the input is null and count is 8");
    s.input = memory_a.data();
    s.output = nullptr;
    expect_refused(s, "the output is null and count is 8");
    s.input = nullptr;
    s.count = 0;
    expect_fine(s);
  }
}

TEST(ValidateTest, ABroadcastReadsItsInputOnTheRootOnly) {
  Submission s = of_kind(OpKind::kBroadcast);
  s.input = nullptr;
  s.root = 1;
  expect_fine(s, 2, 0);
  expect_refused(s, "the input is null", 2, 1);
}

TEST(ValidateTest, Scales) {
  Submission s = allreduce();
  s.prescale = 0.5;
  s.postscale = -2.0;
  for (const DataType good :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
    s.dtype = good;
    expect_fine(s);
  }
  for (const DataType bad : {DataType::kInt8, DataType::kUint64, DataType::kBool}) {
    s.dtype = bad;
    expect_refused(s, "prescale 0.5");
  }
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kBroadcast}) {
    s = of_kind(kind);
    s.postscale = 3.0;
    expect_refused(s, "only an allreduce");
  }
  for (const double bad :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    s = allreduce();
    s.prescale = bad;
    expect_refused(s, "prescale is");
    s.prescale = 1.0;
    s.postscale = bad;
    expect_refused(s, "postscale is");
  }
}

TEST(ValidateTest, ByteCountsThatOverflow) {
  Submission s = allreduce();
  constexpr std::size_t kLimit = std::numeric_limits<std::ptrdiff_t>::max();
  for (const std::size_t count :
       {kLimit / 4 + 1, kLimit, std::numeric_limits<std::size_t>::max()}) {
    s.count = count;
    expect_refused(s, "overflows");
  }
  s.kind = OpKind::kAllgather;
  s.count = kLimit / 8;  // fits for one rank, not for the four that are gathered
  expect_refused(s, "for 4 ranks", 4);
  s.count = kLimit / 4 - 4096;  // would wrap around the end of the address space
  s.kind = OpKind::kAllreduce;
  s.input = reinterpret_cast<const void*>(std::numeric_limits<std::uintptr_t>::max() - 64);
  expect_refused(s, "address space");
}

TEST(ValidateTest, MoreThanTwoToTheThirtyOneElementsAreFine) {
  Submission s = allreduce();
  s.dtype = DataType::kInt8;
  s.count = (std::size_t{1} << 31) + 3;
  s.output = const_cast<void*>(s.input);
  expect_fine(s);
}

TEST(ValidateTest, Shapes) {
  Submission s = allreduce();
  s.has_shape = true;
  std::vector<std::int64_t> shape;
  const auto give = [&](std::vector<std::int64_t> extents) {
    shape = std::move(extents);
    s.shape = shape;
  };
  give({2, 4});
  expect_fine(s);
  give({2, 3});
  expect_refused(s, "[2, 3] holds 6 elements and count is 8");
  give({-2, -4});
  expect_refused(s, "negative dimension -2");
  give({std::int64_t{1} << 40, std::int64_t{1} << 40});
  expect_refused(s, "too many elements");
  shape.assign(32, 1);
  shape[7] = 8;
  s.shape = shape;
  expect_fine(s);
  shape.assign(33, 1);
  shape[7] = 8;
  s.shape = shape;
  expect_refused(s, "33 dimensions");
  give({std::int64_t{1} << 40, std::int64_t{1} << 40, 0});
  s.count = 0;
  expect_fine(s);
  s.shape = {};
  s.count = 1;
  expect_fine(s);
  s.count = 0;
  expect_refused(s, "[] holds 1 elements");
  s.kind = OpKind::kAllgather;
  s.count = 1;
  expect_refused(s, "scalar");
}

TEST(ValidateTest, Roots) {
  Submission s = of_kind(OpKind::kBroadcast);
  for (const int root : {-1, 2, 1000}) {
    s.root = root;
    expect_refused(s, "root " + std::to_string(root));
  }
  s.root = 1;
  expect_fine(s);
}

TEST(ValidateTest, Names) {
  EXPECT_TRUE(validate_name("").is_ok());
  EXPECT_TRUE(validate_name("a#b").is_ok());
  EXPECT_TRUE(validate_name(std::string(4096, 'n')).is_ok());
  EXPECT_THAT(validate_name(std::string(4097, 'n')).text(), HasSubstr("4097 bytes"));
  EXPECT_THAT(validate_name("#1").text(), HasSubstr("'#'"));
  Submission s = allreduce();
  s.name = "#layer1.weight";
  expect_refused(s, "'#'");
  s.kind = OpKind::kBarrier;
  expect_refused(s, "'#'");
}

TEST(ValidateTest, TimeoutsMustBePositive) {
  Submission s = allreduce();
  s.timeout = Nanos{0};
  expect_refused(s, "timeout");
}

TEST(ValidateTest, OverlapIsEitherInPlaceOrRefused) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
    Submission s = of_kind(kind);
    s.output = memory_a.data();
    expect_fine(s);
    s.output = memory_a.data() + 32;  // directly behind the input
    expect_fine(s);
    for (const std::size_t offset : {1u, 4u, 31u}) {
      s.input = memory_a.data();
      s.output = memory_a.data() + offset;
      expect_refused(s, "overlap");
      s.input = memory_a.data() + offset;
      s.output = memory_a.data();
      expect_refused(s, "overlap");
    }
  }
}

TEST(ValidateTest, AllgatherInPlaceStandsAtTheRanksOwnPlace) {
  Submission s = of_kind(OpKind::kAllgather);
  s.output = memory_a.data();
  for (int place = 0; place < 3; ++place) {
    s.input = memory_a.data() + 32 * place;
    expect_fine(s, 3);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == place) {
        expect_fine(s, 3, rank);
      } else {
        expect_refused(s, "in place", 3, rank);
      }
    }
  }
  s.input = memory_a.data() + 96;
  expect_fine(s, 3);  // behind the output
  s.input = memory_a.data() + 33;
  expect_refused(s, "in place", 3);
}

Submission scatter() {
  Submission s = of_kind(OpKind::kReduceScatter);
  s.count = 4;
  return s;
}

TEST(ValidateTest, AdasumIsForAllreducesOfFloats) {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kInt32, DataType::kBool}) {
    Submission s = allreduce();
    s.op = ReduceOp::kAdasum;
    s.dtype = dtype;
    if (is_floating(dtype)) {
      expect_fine(s);
    } else {
      expect_refused(s, "adasum is not defined on");
    }
  }
  Submission s = scatter();
  s.op = ReduceOp::kAdasum;
  expect_refused(s, "adasum is for allreduce only");
}

TEST(ValidateTest, CountsByRank) {
  const std::size_t counts[] = {3, 0, 5};
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kReduceScatter}) {
    for (int place = 0; place < 3; ++place) {
      Submission s = of_kind(kind);
      s.count = counts[place];
      s.receive_counts = counts;
      expect_fine(s, 3, place);
      s.count += 1;
      expect_refused(s, "they must be equal", 3, place);
      s.count -= 1;
      s.send_counts = counts;
      expect_refused(s, "send_counts are for alltoall", 3, place);
    }
  }
  Submission s = of_kind(OpKind::kAlltoall);
  s.send_counts = s.receive_counts = counts;
  expect_fine(s, 3, 1);
  s.count = 9;
  expect_refused(s, "send_counts make 8", 3, 1);
  s.receive_counts = nullptr;
  s.count = 8;
  expect_refused(s, "give both", 3, 1);
  s.send_counts = nullptr;
  s.receive_counts = counts;
  expect_refused(s, "give both", 3, 1);
  s = allreduce();
  s.receive_counts = counts;
  expect_refused(s, "recv_counts do not fit", 3, 1);
  const std::size_t huge[] = {SIZE_MAX / 2, SIZE_MAX / 2, 3};
  s = of_kind(OpKind::kAlltoall);
  s.send_counts = s.receive_counts = huge;
  expect_refused(s, "overflow", 3, 1);
}

TEST(ValidateTest, TheLibrarysOutput) {
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall}) {
    Submission s = of_kind(kind);
    s.allocate = true;
    expect_refused(s, "leave output and recv_counts NULL");
    s.output = nullptr;
    expect_fine(s);
  }
  Submission s = allreduce();
  s.allocate = true;
  expect_refused(s, "allocate is for allgather and alltoall");
}

TEST(ValidateTest, InPlaceInABlockOfOnesOwn) {
  const std::size_t counts[] = {2, 3, 4};
  for (int place = 0; place < 3; ++place) {
    Submission s = scatter();
    s.output = memory_a.data() + place * 4 * 4;
    expect_fine(s, 3, place);
    s.output = memory_a.data() + place * 4 * 4 + 4;
    expect_refused(s, "the output lies in the input", 3, place);
    s.receive_counts = counts;
    s.count = counts[place];
    const std::size_t before = place == 0 ? 0 : place == 1 ? 2 : 5;
    s.output = memory_a.data() + before * 4;
    expect_fine(s, 3, place);
    Submission gather = of_kind(OpKind::kAllgather);
    gather.receive_counts = counts;
    gather.count = counts[place];
    gather.output = memory_b.data();
    gather.input = memory_b.data() + before * 4;
    expect_fine(gather, 3, place);
    gather.input = memory_b.data() + before * 4 + 1;
    expect_refused(gather, "the input lies in the output", 3, place);
  }
  Submission exchange = of_kind(OpKind::kAlltoall);
  exchange.output = memory_a.data();
  expect_refused(exchange, "an alltoall needs separate buffers");
}

TEST(ValidateTest, RootsAreRanksOfTheSet) {
  const int ranks[] = {1, 4, 6};
  Submission s = of_kind(OpKind::kBroadcast);
  for (const int root : {1, 4, 6}) {
    s.root = root;
    EXPECT_TRUE(validate(s, 3, 1, ranks).is_ok());
    s.input = nullptr;  // read on the root only
    EXPECT_EQ(validate(s, 3, 1, ranks).is_ok(), root != 4);
    s.input = memory_a.data();
  }
  for (const int root : {0, 2, 7, -1}) {
    s.root = root;
    EXPECT_THAT(validate(s, 3, 1, ranks).text(), HasSubstr("not a rank of the process set"));
  }
}

TEST(ValidateTest, CallsThatMakeOrEndSets) {
  const auto refused = [](Submission s, const std::string& words) {
    EXPECT_THAT(validate_set(s, 4).text(), HasSubstr(words));
  };
  const std::int64_t ranks[] = {0, 3};
  Submission s;
  s.kind = OpKind::kCreateSet;
  s.has_shape = true;
  s.shape = ranks;
  EXPECT_TRUE(validate_set(s, 4).is_ok());
  EXPECT_FALSE(validate_set(s, 3).is_ok());  // there is no rank 3
  s.shape = {};
  refused(s, "at least one rank");
  const std::int64_t twice[] = {1, 1};
  s.shape = twice;
  refused(s, "given twice");
  const std::int64_t below[] = {-1, 1};
  s.shape = below;
  refused(s, "no rank -1");
  s.shape = ranks;
  s.process_set = 2;
  refused(s, "of the options only");
  s.process_set = 0;
  s.prescale = 2;
  refused(s, "of the options only");
}

}  // namespace
}  // namespace kolo::internal
