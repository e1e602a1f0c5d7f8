// The parts of kolo-bench that need no job: what goes in and must come out, the sets of gradients,
// bytes and bus bandwidth, numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <sstream>

#include "bench/common/statistics.h"
#include "bench/common/text.h"
#include "bench/kolo_bench/data.h"
#include "bench/kolo_bench/gradients.h"
#include "bench/kolo_bench/words.h"

namespace kolo::bench {
namespace {

constexpr std::size_t kCount = 600;  // more than two periods

// What a correct library would give, computed here by plain loops in double.
std::vector<std::byte> reference(const Content& content) {
  const std::size_t size = dtype_bytes(content.dtype);
  std::vector<std::byte> output(kCount * size);
  for (std::size_t i = 0; i < kCount; ++i) {
    double result = static_cast<double>(input_value(content, 0, i));
    for (int rank = 1; rank < content.ranks; ++rank) {
      const auto value = static_cast<double>(input_value(content, rank, i));
      const bool logical = content.dtype == KOLO_BOOL;
      switch (content.op) {
        case KOLO_SUM: result = logical ? std::max(result, value) : result + value; break;
        case KOLO_AVG: result += value; break;
        case KOLO_PROD: result = logical ? std::min(result, value) : result * value; break;
        case KOLO_MAX: result = std::max(result, value); break;
        case KOLO_MIN: result = std::min(result, value); break;
        case KOLO_ADASUM: ADD_FAILURE() << "the bench does not offer it"; break;
      }
    }
    if (content.op == KOLO_AVG) {
      result /= content.ranks;
      if (!is_float(content.dtype)) result = std::trunc(result);
    }
    store_element(content.dtype, result, output.data() + i * size);
  }
  return output;
}

TEST(BenchData, RightResultsOfEveryTypeAndOperatorPass) {
  for (const kolo_dtype dtype : all_dtypes()) {
    for (const kolo_op op : all_ops()) {
      if (!can_reduce(dtype, op)) continue;
      for (const int ranks : {1, 2, 4, 8}) {  // whose averages the 16-bit types hold exactly
        if (op == KOLO_AVG && (dtype == KOLO_FLOAT16 || dtype == KOLO_BFLOAT16)) continue;
        const Content content{Collective::kAllreduce, dtype, op, 0, ranks, 0};
        EXPECT_EQ(count_wrong(content, 0, reference(content).data(), kCount), 0u)
            << dtype_name(dtype) << " " << op_name(op) << " of " << ranks;
      }
    }
  }
}

TEST(BenchData, EveryWrongElementIsCounted) {
  for (const kolo_dtype dtype : all_dtypes()) {
    if (!can_reduce(dtype, KOLO_MAX)) continue;
    const Content content{Collective::kAllreduce, dtype, KOLO_MAX, 0, 2, 0};
    std::vector<std::byte> output = reference(content);
    for (const std::size_t i : {std::size_t{0}, kCount / 2, kCount - 1}) {
      output[i * dtype_bytes(dtype)] ^= std::byte{0x55};
      // The lowest byte of a wide float is below its tolerance; the highest never is.
      output[(i + 1) * dtype_bytes(dtype) - 1] ^= std::byte{0x15};
    }
    EXPECT_EQ(count_wrong(content, 0, output.data(), kCount), 3u) << dtype_name(dtype);
  }
}

TEST(BenchData, NaNAndDataInAWrongPlaceAreWrong) {
  const Content content{Collective::kAllreduce, KOLO_FLOAT32, KOLO_SUM, 0, 2, 0};
  std::vector<std::byte> output = reference(content);
  store_element(KOLO_FLOAT32, std::nan(""), output.data());
  EXPECT_EQ(count_wrong(content, 0, output.data(), kCount), 1u);
  output = reference(content);
  std::memmove(output.data() + 4, output.data(), output.size() - 4);  // late by one element
  EXPECT_GT(count_wrong(content, 0, output.data(), kCount), kCount / 2);
}

TEST(BenchData, GatheredAndBroadcastPartsAreTheSendersOwn) {
  const Content gather{Collective::kAllgather, KOLO_UINT16, KOLO_SUM, 0, 3, 0};
  std::vector<std::uint16_t> output(3 * kCount);
  for (int rank = 0; rank < 3; ++rank) {
    fill_input(gather, rank, output.data() + static_cast<std::size_t>(rank) * kCount, kCount);
  }
  EXPECT_EQ(count_wrong(gather, 0, output.data(), kCount), 0u);
  std::swap_ranges(output.begin(), output.begin() + kCount, output.begin() + kCount);
  EXPECT_GT(count_wrong(gather, 0, output.data(), kCount), kCount);

  const Content broadcast{Collective::kBroadcast, KOLO_UINT16, KOLO_SUM, 1, 3, 0};
  fill_input(broadcast, 1, output.data(), kCount);
  EXPECT_EQ(count_wrong(broadcast, 0, output.data(), kCount), 0u);
  fill_input(broadcast, 0, output.data(), kCount);
  EXPECT_GT(count_wrong(broadcast, 0, output.data(), kCount), kCount / 2);
}

// Output of rank r, part s: block r of what rank s put in.
TEST(BenchData, BlocksAreThoseOfTheirRank) {
  constexpr int kRanks = 3;
  const Content scatter{Collective::kReduceScatter, KOLO_INT32, KOLO_SUM, 0, kRanks, 0};
  const Content exchange{Collective::kAlltoall, KOLO_INT32, KOLO_SUM, 0, kRanks, 0};
  for (const Content& content : {scatter, exchange}) {
    std::vector<std::vector<std::int32_t>> inputs(kRanks,
                                                  std::vector<std::int32_t>(kRanks * kCount));
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& input = inputs[static_cast<std::size_t>(rank)];
      fill_input(content, rank, input.data(), input_count(content.collective, kCount, kRanks));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::size_t first = static_cast<std::size_t>(rank) * kCount;
      std::vector<std::int32_t> output(output_count(content.collective, kCount, kRanks));
      for (std::size_t source = 0; source < kRanks; ++source) {
        const std::size_t part = output.size() > kCount ? source * kCount : 0;
        for (std::size_t i = 0; i < kCount; ++i) output[part + i] += inputs[source][first + i];
      }
      EXPECT_EQ(count_wrong(content, rank, output.data(), kCount), 0u);
      EXPECT_GT(count_wrong(content, (rank + 1) % kRanks, output.data(), kCount), kCount / 2);
      output.back() ^= 0x55;
      EXPECT_EQ(count_wrong(content, rank, output.data(), kCount), 1u);
    }
  }
}

TEST(BenchData, SixteenBitAveragesMayBeRoundedOnce) {
  const Content content{Collective::kAllreduce, KOLO_BFLOAT16, KOLO_AVG, 0, 3, 0};
  std::vector<std::uint16_t> output(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto wanted = static_cast<float>(expected_value(content, 0, i));
    std::uint32_t bits = 0;
    std::memcpy(&bits, &wanted, sizeof(bits));
    output[i] = static_cast<std::uint16_t>(bits >> 16);  // cut, the worst rounding there is
  }
  EXPECT_EQ(count_wrong(content, 0, output.data(), kCount), 0u);
  output[5] = static_cast<std::uint16_t>(output[5] + 4);
  EXPECT_EQ(count_wrong(content, 0, output.data(), kCount), 1u);
}

std::size_t parameters(const std::vector<Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                         [](std::size_t sum, const Tensor& tensor) { return sum + tensor.count; });
}

// The published numbers of parameters.
TEST(BenchGradients, KnownNetworksHaveTheirParameters) {
  EXPECT_EQ(resnet50().size(), 161u);
  EXPECT_EQ(parameters(resnet50()), 25'557'032u);
  EXPECT_EQ(bert_base().size(), 199u);
  EXPECT_EQ(parameters(bert_base()), 109'482'240u);
  EXPECT_EQ(tiny().size(), 2000u);
  EXPECT_EQ(parameters(tiny()), 2000u * 256);
  for (const auto& tensors : {resnet50(), bert_base(), tiny()}) {
    std::set<std::string> names;
    for (const Tensor& tensor : tensors) EXPECT_TRUE(names.insert(tensor.name).second);
  }
}

TEST(BenchGradients, FilesAreReadOrRefusedByLine) {
  std::string error;
  std::istringstream good("# a model\n100\n\nbias 7 # last\n");
  const std::vector<Tensor> tensors = read_tensors(good, error);
  EXPECT_EQ(error, "");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].count, 100u);
  EXPECT_EQ(tensors[1].name, "bias");
  EXPECT_EQ(tensors[1].count, 7u);
  for (const char* text : {"a b c\n", "7\nx\n", "a 1\na 2\n", "-1\n", "", "# nothing\n"}) {
    std::istringstream bad(text);
    error.clear();
    EXPECT_TRUE(read_tensors(bad, error).empty());
    EXPECT_NE(error, "") << text;
  }
}

TEST(BenchWords, BytesCountsAndBusBandwidth) {
  EXPECT_EQ(count_for(Collective::kAllreduce, 1000, 4, 4), 250u);
  EXPECT_EQ(count_for(Collective::kAllgather, 1000, 4, 4), 62u);
  EXPECT_EQ(count_for(Collective::kReduceScatter, 1000, 4, 4), 62u);
  EXPECT_EQ(count_for(Collective::kAlltoall, 1000, 4, 4), 62u);
  EXPECT_EQ(count_for(Collective::kBarrier, 1000, 4, 4), 0u);
  EXPECT_EQ(input_count(Collective::kReduceScatter, 62, 4), 248u);
  EXPECT_EQ(output_count(Collective::kReduceScatter, 62, 4), 62u);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAlltoall, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1.0);
  for (const kolo_dtype dtype : all_dtypes()) EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_EQ(parse_dtype("half"), KOLO_FLOAT16);
  EXPECT_EQ(parse_dtype("f32"), KOLO_FLOAT32);
  EXPECT_EQ(parse_dtype("fp32x"), std::nullopt);
}

TEST(BenchText, SizesAndQuantiles) {
  EXPECT_EQ(parse_bytes("8"), 8u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("2m"), std::size_t{2} << 20);
  EXPECT_EQ(parse_bytes("1G"), std::size_t{1} << 30);
  for (const char* text : {"", "K", "-1", "1.5K", "8 ", "9999999G"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 4, 2, 3}, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 4, 2, 3}, 1.0), 5);
}

}  // namespace
}  // namespace kolo::bench
