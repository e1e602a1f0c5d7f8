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
  for (const int number : {-1, 5, 16, 1000}) {
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
  expect_refused(s, "from each of 4 ranks", 4);
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

}  // namespace
}  // namespace kolo::internal
