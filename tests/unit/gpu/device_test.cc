// Owners of CUDA's handles and kolo's kernels, on a device: the fake one, or the real one where
// KOLO_TEST_CUDART names its runtime. The same cases for both; skipped where there is no device.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/cuda/counter_pool.h"
#include "ops/cuda/event_pool.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/kernels.h"
#include "ops/half.h"

namespace kolo::internal::cuda {
namespace {

using testing::HasSubstr;

class Device : public testing::Test {
 protected:
  void SetUp() override {
    const char* real = std::getenv("KOLO_TEST_CUDART");
    is_fake_ = real == nullptr;
    Config config;
    ASSERT_TRUE(config.set("cudart_path", is_fake_ ? KOLO_FAKE_CUDART : real).is_ok());
    auto runtime = Runtime::load(config);
    if (!kIsBuilt) GTEST_SKIP() << runtime.status().text();
    ASSERT_TRUE(runtime.is_ok()) << runtime.status().to_string();
    runtime_ = *std::move(runtime);
    const auto devices = runtime_->count_devices();
    if (!devices.is_ok() && !is_fake_) GTEST_SKIP() << devices.status().text();
    ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
    devices_ = *devices;
  }
  void TearDown() override {
    if (!is_fake_ || runtime_ == nullptr) return;
    void* fake = ::dlopen(KOLO_FAKE_CUDART, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(fake, nullptr);
    using Counts = long(void*);
    auto* census = reinterpret_cast<Counts*>(::dlsym(fake, "fakegpu_census"));
    auto* misuses = reinterpret_cast<long (*)()>(::dlsym(fake, "fakegpu_misuses"));
    EXPECT_EQ(census(nullptr), 0) << "handles are left";
    EXPECT_EQ(misuses(), 0);
  }

  // The fake runs kernels by name, and looks at no code.
  Result<std::unique_ptr<const Kernels>> load_kernels() const {
    static constexpr std::byte kAnything[64] = {};
    return is_fake_ ? Kernels::load(*runtime_, 0, kAnything) : Kernels::load(*runtime_, 0);
  }
  void copy(void* to, const void* from, std::size_t bytes, const Stream& stream) const {
    const Error error = runtime_->cudaMemcpyAsync(to, from, bytes, kCopyByAddress, stream.get());
    ASSERT_EQ(error, kSuccess);
    ASSERT_EQ(runtime_->cudaStreamSynchronize(stream.get()), kSuccess);
  }

  bool is_fake_ = true;
  int devices_ = 0;
  std::unique_ptr<const Runtime> runtime_;
};

TEST_F(Device, OwnersGiveBackWhatTheyOwn) {
  auto stream = Stream::create(*runtime_, Stream::Priority::kHighest);
  auto event = Event::create(*runtime_);
  auto pinned = PinnedBuffer::create(*runtime_, 4096);
  auto memory = DeviceBuffer::create(*runtime_, 4096);
  ASSERT_TRUE(stream.is_ok() && event.is_ok() && pinned.is_ok() && memory.is_ok());
  EXPECT_EQ(pinned->bytes(), 4096u);
  EXPECT_EQ(memory->bytes(), 4096u);
  std::memset(pinned->data(), 0x5a, pinned->bytes());
  copy(memory->data(), pinned->data(), 4096, *stream);
  EXPECT_EQ(runtime_->cudaEventRecord(event->get(), stream->get()), kSuccess);
  EXPECT_EQ(runtime_->cudaEventSynchronize(event->get()), kSuccess);
  Stream moved = *std::move(stream);
  EXPECT_TRUE(moved);
  EXPECT_FALSE(*stream);  // NOLINT(bugprone-use-after-move): what it is about
  moved = Stream();
  EXPECT_FALSE(moved);
  PinnedBuffer other = *std::move(pinned);
  EXPECT_EQ(other.bytes(), 4096u);
  EXPECT_EQ(pinned->bytes(), 0u);  // NOLINT(bugprone-use-after-move)
}

TEST_F(Device, WhatIsTooMuchIsAStatus) {
  const auto memory = DeviceBuffer::create(*runtime_, std::size_t{1} << 50);
  EXPECT_EQ(memory.status().code(), StatusCode::kResource);
  EXPECT_THAT(memory.status().text(), HasSubstr(std::to_string(std::size_t{1} << 50)));
  static_cast<void>(runtime_->cudaGetLastError());
}

TEST_F(Device, TheCurrentDeviceComesBack) {
  int current = -1;
  {
    const DeviceGuard guard(*runtime_, devices_ - 1);
    EXPECT_TRUE(guard.status().is_ok());
    ASSERT_EQ(runtime_->cudaGetDevice(&current), kSuccess);
    EXPECT_EQ(current, devices_ - 1);
    const DeviceGuard wrong(*runtime_, devices_);
    EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
    static_cast<void>(runtime_->cudaGetLastError());
  }
  ASSERT_EQ(runtime_->cudaGetDevice(&current), kSuccess);
  EXPECT_EQ(current, 0);
}

TEST_F(Device, EventsAreUsedAgainWhenTheirLastShareGoes) {
  runtime_->cudaSetDevice(devices_ - 1);
  EventPool pool(*runtime_, devices_ - 1);
  ASSERT_TRUE(pool.make(2).is_ok());
  {
    EventRef one = pool.take();
    const EventRef two = pool.take();
    ASSERT_TRUE(one && two);
    EXPECT_NE(one.handle(), two.handle());
    EXPECT_FALSE(pool.take()) << "more are made by the pool's thread only";
    const EventRef share = one;
    one = {};
    EXPECT_EQ(pool.free_count(), 0U);
  }
  EXPECT_EQ(pool.free_count(), 2U);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&pool] {
      for (int j = 0; j < 100; ++j) EXPECT_TRUE(pool.take());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const EventRef held = pool.take();
  pool.destroy_all();
  EXPECT_EQ(held.handle(), nullptr);
}

TEST_F(Device, CountersAreZeroAndUsedAgain) {
  CounterPool pool(*runtime_);
  const auto first = pool.take(3);
  const auto second = pool.take(5000);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  (*first)[2] = 7;
  (*second)[4999] = 7;
  const auto third = pool.take(40);
  ASSERT_TRUE(third.is_ok());
  EXPECT_NE(*third, *first);
  EXPECT_EQ((*third)[39], 0u);
  pool.give_back(*first, 3);
  const auto again = pool.take(16);
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(*again, *first);
  EXPECT_EQ((*again)[2], 0u);
  pool.give_back(*third, 40);
  pool.give_back(*second, 5000);
  const auto larger = pool.take(9000);  // than any chunk that there is
  ASSERT_TRUE(larger.is_ok());
  EXPECT_EQ((*larger)[8999], 0u);
  pool.give_back(*larger, 9000);
  pool.give_back(*again, 16);
  pool.clear();
  EXPECT_EQ(pool.take(std::size_t{1} << 47).status().code(), StatusCode::kResource);
  static_cast<void>(runtime_->cudaGetLastError());
}

TEST_F(Device, KernelsPackAndUnpackManyTensors) {
  auto kernels = load_kernels();
  if (!kernels.is_ok() && !is_fake_) GTEST_SKIP() << kernels.status().text();
  ASSERT_TRUE(kernels.is_ok()) << kernels.status().to_string();
  constexpr std::size_t kTensors = 300;  // three launches
  auto stream = Stream::create(*runtime_);
  std::vector<PlacedTensor> placed;
  std::size_t elements = 0;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::size_t count = i * 37 % 5000;  // 0 among them
    placed.push_back({nullptr, offset, count});
    elements += count;
    offset += (count * sizeof(std::uint16_t) + 15) / 16 * 16;
  }
  auto host = PinnedBuffer::create(*runtime_, elements * sizeof(float));
  auto memory = DeviceBuffer::create(*runtime_, elements * sizeof(float));
  auto buffer = DeviceBuffer::create(*runtime_, offset);
  auto counter = PinnedBuffer::create(*runtime_, kTensors * sizeof(unsigned long long));
  ASSERT_TRUE(stream.is_ok() && host.is_ok() && memory.is_ok() && buffer.is_ok() &&
              counter.is_ok());
  auto* values = reinterpret_cast<float*>(host->data());
  for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i % 1000) * 0.37f;
  values[1000] = INFINITY;
  values[2000] = 3e38f;  // infinite after its scale
  std::memset(counter->data(), 0, counter->bytes());
  copy(memory->data(), host->data(), memory->bytes(), *stream);
  std::size_t begin = 0;
  for (PlacedTensor& tensor : placed) {
    tensor.memory = memory->data() + begin * sizeof(float);
    begin += tensor.count;
  }
  Batch batch{placed, buffer->data(), DataType::kFloat32, DataType::kBfloat16, 2.0, nullptr};
  const Status packed = (*kernels)->pack(stream->get(), batch);
  ASSERT_TRUE(packed.is_ok()) << packed.to_string();
  batch.scale = 0.5;
  auto* const counters = reinterpret_cast<unsigned long long*>(counter->data());
  batch.counters = counters;
  const Status unpacked = (*kernels)->unpack(stream->get(), batch);
  ASSERT_TRUE(unpacked.is_ok()) << unpacked.to_string();
  std::vector<float> before(values, values + elements);
  copy(host->data(), memory->data(), memory->bytes(), *stream);
  for (std::size_t i = 0; i < elements; ++i) {
    const float wanted = widen_bf16(narrow_bf16(before[i] * 2.0f)) * 0.5f;
    ASSERT_EQ(bits_of_float(values[i]), bits_of_float(wanted)) << i;
  }
  const auto expect_counts = [&](unsigned long long times) {
    std::size_t first = 0;
    for (std::size_t i = 0; i < kTensors; ++i) {
      unsigned long long wanted = 0;
      for (std::size_t k = 0; k < placed[i].count; ++k) {
        if (!std::isfinite(values[first + k])) wanted += times;
      }
      EXPECT_EQ(counters[i], wanted) << "tensor " << i;
      first += placed[i].count;
    }
  };
  expect_counts(1);
  const Status counted = (*kernels)->count(stream->get(), batch);
  ASSERT_TRUE(counted.is_ok()) << counted.to_string();
  ASSERT_EQ(runtime_->cudaStreamSynchronize(stream->get()), kSuccess);
  expect_counts(2);
}

TEST_F(Device, KernelsRefuseWhatTheyCannotDo) {
  auto kernels = load_kernels();
  if (!kernels.is_ok() && !is_fake_) GTEST_SKIP() << kernels.status().text();
  ASSERT_TRUE(kernels.is_ok()) << kernels.status().to_string();
  Batch batch;
  batch.buffer_type = DataType::kFloat64;
  EXPECT_EQ((*kernels)->pack(nullptr, batch).code(), StatusCode::kInvalidArgument);
  batch.tensor_type = batch.buffer_type = DataType::kInt32;
  batch.scale = 2.0;
  EXPECT_EQ((*kernels)->unpack(nullptr, batch).code(), StatusCode::kInvalidArgument);
  batch.scale = 1.0;
  EXPECT_TRUE((*kernels)->pack(nullptr, batch).is_ok()) << "no tensors, no launch";
  const auto none = Kernels::load(*runtime_, 0, {});
  EXPECT_EQ(none.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(none.status().text(), HasSubstr("no kernels"));
}

}  // namespace
}  // namespace kolo::internal::cuda
