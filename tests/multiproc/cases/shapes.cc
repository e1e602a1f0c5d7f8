// S15 to S17 and S20: shapes, sizes and roots.
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

int s15() {
  const Job job;
  job.expect_size(2);
  float nothing = 7.0F;
  std::vector<float> a = {job.rank() == 0 ? 0.5F : 2.5F};
  std::vector<float> same = {1.5F};
  std::vector<kolo_request> requests = {
      job.submit_raw(named("z"), &nothing, 0, KOLO_FLOAT32), job.submit("a", same),
      job.broadcast("y", &nothing, 0, KOLO_FLOAT32, 0),
      job.submit_raw(named("null"), nullptr, 0, KOLO_FLOAT32), job.submit("a2", a)};
  expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 10'000), KOLO_OK,
                "kolo_wait_all");
  KOLO_EXPECT(same[0] == 3.0F && a[0] == 3.0F && nothing == 7.0F);
  job.shutdown();
  return 0;
}

int s16() {
  const Job job;
  job.expect_size(2);
  const std::int64_t no_dimensions = 0;
  const auto scalar = [&](const char* name) {
    kolo_options options = named(name);
    options.shape = &no_dimensions;
    return options;
  };
  const float mine = static_cast<float>(job.rank() + 1);
  float value = mine;
  job.finish(job.submit_raw(scalar("avg"), &value, 1, KOLO_FLOAT32, KOLO_AVG), KOLO_OK);
  KOLO_EXPECT(value == 1.5F);
  value = mine;
  kolo_options options = scalar("bc");
  expect_status(
      kolo_broadcast(job.context(), &value, &value, 1, KOLO_FLOAT32, 1, &options, nullptr), KOLO_OK,
      "broadcast of a scalar");
  KOLO_EXPECT(value == 2.0F);

  std::vector<float> gathered = {-1, -1};
  options = scalar("ag");
  expect_status(
      kolo_allgather(job.context(), &mine, gathered.data(), 1, KOLO_FLOAT32, &options, nullptr),
      KOLO_INVALID_ARGUMENT, "all-gather of a scalar");
  expect_text({"\"ag\"", "scalar"});

  const Stopwatch watch;
  if (job.rank() == 0) {
    options = named("ag1");
    expect_status(
        kolo_allgather(job.context(), &mine, gathered.data(), 1, KOLO_FLOAT32, &options, nullptr),
        KOLO_MISMATCH, "all-gather of (1,) against a scalar");
    expect_text({"'ag1'", "rank 1", "scalar"});
  } else {
    options = scalar("ag1");
    expect_status(
        kolo_allgather(job.context(), &mine, gathered.data(), 1, KOLO_FLOAT32, &options, nullptr),
        KOLO_INVALID_ARGUMENT, "all-gather of a scalar against (1,)");
    expect_text({"\"ag1\"", "scalar"});
  }
  watch.expect_between(0, 1, "the all-gather failed");
  KOLO_EXPECT(gathered == (std::vector<float>{-1, -1}));
  job.probe();
  job.shutdown();
  return 0;
}

// Buffers that begin at odd addresses.
template <typename T>
class Odd {
 public:
  explicit Odd(std::size_t count) : bytes_(count * sizeof(T) + 1) {}
  void* data() { return bytes_.data() + 1; }
  void set(std::size_t i, T value) {
    std::memcpy(bytes_.data() + 1 + i * sizeof(T), &value, sizeof value);
  }
  T get(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + 1 + i * sizeof(T), sizeof value);
    return value;
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

void reduce_mixed_types(const Job& job) {
  constexpr std::uint16_t kHalves[] = {0x3C00, 0x4000, 0x4200, 0x4400};  // 1, 2, 3, 4
  constexpr std::uint16_t kSix = 0x4600;
  const int r = job.rank() + 1;
  Odd<std::int8_t> bytes(3);
  for (std::size_t i = 0; i < 3; ++i)
    bytes.set(i, static_cast<std::int8_t>(r * 10 * (i == 1 ? -1 : 1)));
  Odd<double> wide(1);
  wide.set(0, r + 0.25);
  Odd<std::uint16_t> halves(7);
  for (std::size_t i = 0; i < 7; ++i) halves.set(i, kHalves[r - 1]);
  Odd<std::uint8_t> flag(1);
  flag.set(0, r == 2 ? 1 : 0);
  Odd<std::int64_t> longs(2);
  longs.set(0, std::int64_t{r} << 40);
  longs.set(1, -r);
  std::vector<kolo_request> requests = {
      job.submit_raw(named("i8"), bytes.data(), 3, KOLO_INT8),
      job.submit_raw(named("f64"), wide.data(), 1, KOLO_FLOAT64),
      job.submit_raw(named("f16"), halves.data(), 7, KOLO_FLOAT16),
      job.submit_raw(named("bool"), flag.data(), 1, KOLO_BOOL),
      job.submit_raw(named("i64"), longs.data(), 2, KOLO_INT64)};
  expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 10'000), KOLO_OK,
                "kolo_wait_all");
  for (std::size_t i = 0; i < 3; ++i) KOLO_EXPECT(bytes.get(i) == (i == 1 ? -60 : 60));
  KOLO_EXPECT(wide.get(0) == 6.75);
  for (std::size_t i = 0; i < 7; ++i) KOLO_EXPECT(halves.get(i) == kSix);
  KOLO_EXPECT(flag.get(0) == 1);
  KOLO_EXPECT(longs.get(0) == std::int64_t{6} << 40 && longs.get(1) == -6);
}

// The fusion limit comes from KOLO_FUSION_THRESHOLD_BYTES.
int s17() {
  const Job job;
  job.expect_size(3);
  for (int round = 0; round < 3; ++round) reduce_mixed_types(job);
  const char* text = std::getenv("KOLO_FUSION_THRESHOLD_BYTES");
  if (text == nullptr) fail("KOLO_FUSION_THRESHOLD_BYTES is not set");
  const std::size_t limit = std::strtoull(text, nullptr, 10);
  for (const std::size_t count : {limit - 1, limit, limit + 1}) {
    std::vector<std::int8_t> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<std::int8_t>(static_cast<int>(i % 31) + job.rank());
    }
    std::vector<std::int8_t> small = {1};
    const kolo_request requests[] = {job.submit("limit", values), job.submit("small", small)};
    for (const kolo_request request : requests) job.finish(request, KOLO_OK);
    for (std::size_t i = 0; i < count; ++i)
      KOLO_EXPECT(values[i] == static_cast<int>(3 * (i % 31)) + 3);
    KOLO_EXPECT(small[0] == 3);
  }
  job.shutdown();
  return 0;
}

void expect_refused_root(const Job& job, int root) {
  std::vector<float> values = {5.0F};
  const kolo_options options = named(root < 0 ? "below" : "above");
  const Stopwatch watch;
  kolo_request request = 1;
  expect_status(kolo_broadcast(job.context(), values.data(), values.data(), 1, KOLO_FLOAT32, root,
                               &options, &request),
                KOLO_INVALID_ARGUMENT, "a root that is no rank");
  watch.expect_between(0, 0.1, "the root was refused");
  expect_text({options.name, "root " + std::to_string(root), "0 to 1"});
  KOLO_EXPECT(request == KOLO_REQUEST_NULL && values[0] == 5.0F);
}

int s20() {
  const Job job;
  job.expect_size(2);
  expect_refused_root(job, -1);
  expect_refused_root(job, 2);

  std::vector<float> values = {5.0F + static_cast<float>(job.rank())};
  const std::vector<float> before = values;
  job.finish_soon(job.broadcast("own", values.data(), 1, KOLO_FLOAT32, job.rank()), KOLO_MISMATCH);
  expect_text({"'own'", "root differs", "0 on rank 0", "1 on rank 1"});
  KOLO_EXPECT(values == before);

  if (job.rank() == 0) {  // refused here; the other rank is told both roots
    const kolo_options options = named("two");
    expect_status(kolo_broadcast(job.context(), values.data(), values.data(), 1, KOLO_FLOAT32, 2,
                                 &options, nullptr),
                  KOLO_INVALID_ARGUMENT, "root 2 of 2 ranks");
    expect_text({"\"two\"", "root 2", "0 to 1"});
  } else {
    job.finish_soon(job.broadcast("two", values.data(), 1, KOLO_FLOAT32, 0), KOLO_MISMATCH);
    expect_text({"'two'", "rank 0 refused it", "root 2", "2 on rank 0", "0 on rank 1"});
  }
  KOLO_EXPECT(values == before);
  job.probe();
  job.shutdown();
  return 0;
}

// 1 MiB of numbers that are different on every rank.
int wire() {
  const Job job;
  job.probe();
  std::vector<std::int32_t> values(std::size_t{1} << 18);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(i) * (job.rank() + 1);
  }
  job.finish(job.submit("wire", values), KOLO_OK);
  for (std::size_t i = 0; i < values.size(); ++i) {
    KOLO_EXPECT(values[i] == static_cast<std::int32_t>(i) * job.size() * (job.size() + 1) / 2);
  }
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> shape_situations() {
  return {{"S15", s15}, {"S16", s16}, {"S17", s17}, {"S20", s20}, {"wire", wire}};
}

}  // namespace kolo::cases
