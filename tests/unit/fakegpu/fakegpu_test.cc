// The fake CUDA runtime: order of streams, events as tickets, memory, capture, planned faults.
#include "tests/fakegpu/fakegpu.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/fakegpu/runtime_abi.h"

namespace kolo::internal::cuda {
namespace {

// Every case ends as it began: no handle, no misuse, no fault.
class FakeGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), kSuccess);
    ASSERT_EQ(fakegpu_census(nullptr), 0);
  }
  void TearDown() override {
    EXPECT_EQ(fakegpu_set_faults(""), 0);
    EXPECT_EQ(fakegpu_census(nullptr), 0);
    EXPECT_EQ(fakegpu_misuses(), 0) << fakegpu_misuse_text(0);
    cudaGetLastError();
  }

  static StreamHandle make_stream(unsigned flags = kStreamNonBlocking) {
    StreamHandle stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, flags, -1), kSuccess);
    return stream;
  }
  static EventHandle make_event(unsigned flags = kEventDisableTiming | kEventBlockingSync) {
    EventHandle event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), kSuccess);
    return event;
  }
  static std::uint32_t* make_buffer(std::size_t count) {
    void* pointer = nullptr;
    EXPECT_EQ(cudaMalloc(&pointer, count * sizeof(std::uint32_t)), kSuccess);
    return static_cast<std::uint32_t*>(pointer);
  }
  static std::uint32_t value_at(const std::uint32_t* place) {
    std::uint32_t value = 0;
    EXPECT_EQ(fakegpu_peek(place, &value, sizeof value), 0);
    return value;
  }
  static std::uint32_t ones(int byte) { return 0x01010101u * static_cast<unsigned>(byte); }
};

TEST_F(FakeGpuTest, WorkOfAStreamIsDoneInOrder) {
  const StreamHandle stream = make_stream();
  std::uint32_t* buffer = make_buffer(1);
  EXPECT_EQ(fakegpu_hold(stream), 0);
  for (int i = 1; i <= 50; ++i) {
    EXPECT_EQ(cudaMemsetAsync(buffer, i, sizeof *buffer, stream), kSuccess);
  }
  EXPECT_EQ(cudaStreamQuery(stream), kNotReady);
  EXPECT_EQ(value_at(buffer), 0u) << "nothing passes the gate";
  EXPECT_EQ(fakegpu_release(stream), 0);
  EXPECT_EQ(cudaStreamSynchronize(stream), kSuccess);
  EXPECT_EQ(value_at(buffer), ones(50));
  EXPECT_EQ(cudaFree(buffer), kSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), kSuccess);
}

TEST_F(FakeGpuTest, AnEventNeverRecordedIsAnEmptyWait) {
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  EXPECT_EQ(cudaEventQuery(event), kSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), kSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), kSuccess);
  EXPECT_EQ(cudaEventDestroy(event), kSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), kSuccess);
}

TEST_F(FakeGpuTest, ARecordAgainChangesLaterWaitsOnly) {
  const StreamHandle first = make_stream();
  const StreamHandle second = make_stream();
  const StreamHandle waiter = make_stream();
  const StreamHandle late_waiter = make_stream();
  const EventHandle event = make_event();
  EXPECT_EQ(fakegpu_hold(second), 0);
  EXPECT_EQ(cudaEventRecord(event, first), kSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(waiter, event, 0), kSuccess);
  EXPECT_EQ(cudaEventRecord(event, second), kSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(late_waiter, event, 0), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(waiter), kSuccess);
  EXPECT_EQ(cudaStreamQuery(late_waiter), kNotReady);
  EXPECT_EQ(cudaEventQuery(event), kNotReady);
  EXPECT_EQ(fakegpu_release(second), 0);
  EXPECT_EQ(cudaStreamSynchronize(late_waiter), kSuccess);
  EXPECT_EQ(cudaEventQuery(event), kSuccess);
  EXPECT_EQ(cudaEventDestroy(event), kSuccess);
  for (const StreamHandle stream : {first, second, waiter, late_waiter}) {
    EXPECT_EQ(cudaStreamDestroy(stream), kSuccess);
  }
}

TEST_F(FakeGpuTest, TheLegacyStreamIsInOrderWithBlockingStreams) {
  const StreamHandle blocking = make_stream(0);
  const StreamHandle free_one = make_stream(kStreamNonBlocking);
  const StreamHandle of_thread = reinterpret_cast<StreamHandle>(2);
  EXPECT_EQ(fakegpu_hold(blocking), 0);
  const EventHandle in_legacy = make_event();
  EXPECT_EQ(cudaEventRecord(in_legacy, nullptr), kSuccess);
  EXPECT_EQ(cudaEventQuery(in_legacy), kNotReady) << "behind the blocking stream";
  const EventHandle in_thread = make_event();
  EXPECT_EQ(cudaEventRecord(in_thread, of_thread), kSuccess);
  EXPECT_EQ(cudaEventQuery(in_thread), kNotReady) << "behind the legacy stream";
  const EventHandle in_free = make_event();
  EXPECT_EQ(cudaEventRecord(in_free, free_one), kSuccess);
  EXPECT_EQ(cudaEventSynchronize(in_free), kSuccess) << "on its own";
  EXPECT_EQ(fakegpu_release(blocking), 0);
  EXPECT_EQ(cudaEventSynchronize(in_thread), kSuccess);
  EXPECT_EQ(cudaEventQuery(in_legacy), kSuccess);
  for (const EventHandle event : {in_legacy, in_thread, in_free}) cudaEventDestroy(event);
  for (const StreamHandle stream : {blocking, free_one}) cudaStreamDestroy(stream);
}

TEST_F(FakeGpuTest, AnEventBelongsToItsDevice) {
  const EventHandle event = make_event();
  ASSERT_EQ(cudaSetDevice(1), kSuccess);
  const StreamHandle other = make_stream();
  EXPECT_EQ(cudaEventRecord(event, other), 400);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), kSuccess) << "waiting across devices is fine";
  int device = -1;
  std::thread([&] { cudaGetDevice(&device); }).join();
  EXPECT_EQ(device, 0) << "the current device is the thread's own";
  cudaStreamDestroy(other);
  cudaEventDestroy(event);
}

TEST_F(FakeGpuTest, PointersSayWhoseTheyAre) {
  ASSERT_EQ(cudaSetDevice(1), kSuccess);
  std::uint32_t* buffer = make_buffer(100);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, kHostAllocPortable), kSuccess);
  ASSERT_EQ(cudaSetDevice(0), kSuccess);
  PointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, buffer + 99), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(pinned) + 63), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryHost);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &attributes), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryUnregistered);
  EXPECT_EQ(cudaFree(buffer), kSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), kSuccess);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, buffer), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryUnregistered) << "freed";
}

TEST_F(FakeGpuTest, CopiesOfPageableMemoryAreDoneWhenTheyReturn) {
  const StreamHandle stream = make_stream();
  std::uint32_t* buffer = make_buffer(1000);
  std::vector<std::uint32_t> host(1000, 7);
  const long waits = fakegpu_host_waits(-1);
  EXPECT_EQ(cudaMemcpyAsync(buffer, host.data(), 4000, kCopyHostToDevice, stream), kSuccess);
  EXPECT_EQ(value_at(buffer + 999), 7u);
  EXPECT_EQ(fakegpu_host_waits(-1), waits + 1);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 4000, 0), kSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, buffer, 4000, kCopyDeviceToHost, stream), kSuccess);
  EXPECT_EQ(fakegpu_host_waits(-1), waits + 1) << "pinned memory waits for nobody";
  EXPECT_EQ(cudaStreamSynchronize(stream), kSuccess);
  EXPECT_EQ(static_cast<std::uint32_t*>(pinned)[999], 7u);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), pinned, 4, kCopyHostToDevice, stream), kInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), kSuccess);
  EXPECT_EQ(cudaFree(buffer), kSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), kSuccess);
}

TEST_F(FakeGpuTest, KernelsAreFoundByName) {
  LibraryHandle library = nullptr;
  KernelHandle kernel = nullptr;
  ASSERT_EQ(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0), 0);
  EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "no such kernel"), kNotFound);
  ASSERT_EQ(cudaLibraryGetKernel(&kernel, library, "fakegpu_fill"), kSuccess);
  std::uint32_t* buffer = make_buffer(10);
  std::uint32_t value = 77;
  std::size_t count = 10;
  void* arguments[] = {&buffer, &value, &count};
  EXPECT_EQ(cudaLaunchKernel(kernel, {1, 1, 1}, {32, 1, 1}, arguments, 0, nullptr), kSuccess);
  value = 78;  // the launch has its own copy
  EXPECT_EQ(cudaStreamSynchronize(nullptr), kSuccess);
  EXPECT_EQ(value_at(buffer + 9), 77u);
  EXPECT_EQ(cudaFree(buffer), kSuccess);
  EXPECT_EQ(cudaLibraryUnload(library), kSuccess);
}

TEST_F(FakeGpuTest, ACaptureRecordsNothing) {
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  std::uint32_t* buffer = make_buffer(1);
  CaptureStatus status = -1;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), kSuccess);
  EXPECT_EQ(status, kCaptureNone);
  ASSERT_EQ(cudaStreamBeginCapture(stream, 2), kSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), kSuccess);
  EXPECT_EQ(status, kCaptureActive);
  const long captured = fakegpu_calls("captured");
  EXPECT_EQ(cudaMemsetAsync(buffer, 1, 4, stream), kSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), kSuccess);
  EXPECT_EQ(fakegpu_calls("captured"), captured + 2);
  EXPECT_EQ(cudaEventQuery(event), 907);
  GraphHandle graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), kSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), kSuccess);
  EXPECT_EQ(value_at(buffer), 0u);
  cudaFree(buffer);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

TEST_F(FakeGpuTest, ACaptureForbidsWhatCouldWait) {
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  ASSERT_EQ(cudaStreamBeginCapture(stream, 0), kSuccess);
  void* pointer = nullptr;
  Error elsewhere = 0;
  Error relaxed = -1;
  std::thread([&] {
    elsewhere = cudaEventSynchronize(event);
    int mode = 2;
    cudaThreadExchangeStreamCaptureMode(&mode);
    relaxed = cudaEventSynchronize(event);
  }).join();
  EXPECT_EQ(elsewhere, kCaptureUnsupported) << "a global capture is seen by all threads";
  EXPECT_EQ(relaxed, kSuccess);
  EXPECT_EQ(cudaMalloc(&pointer, 4), kCaptureUnsupported);
  GraphHandle graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), 901) << "and spoiled by what is forbidden";
  ASSERT_EQ(cudaStreamBeginCapture(stream, 2), kSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), kCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), 901);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), 903);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

TEST_F(FakeGpuTest, FaultsComeAsPlanned) {
  void* first = nullptr;
  void* second = nullptr;
  EXPECT_EQ(fakegpu_set_faults("nonsense"), 1);
  EXPECT_EQ(fakegpu_set_faults("cudaMalloc:2:oom, cudaEventRecord:*:error:3"), 0);
  EXPECT_EQ(cudaMalloc(&first, 10), kSuccess);
  EXPECT_EQ(cudaMalloc(&second, 10), kMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), kMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), kSuccess);
  const EventHandle event = make_event();
  EXPECT_EQ(cudaEventRecord(event, nullptr), 3);
  EXPECT_EQ(cudaEventRecord(event, nullptr), 3);
  EXPECT_EQ(cudaMalloc(&second, 10), kSuccess);
  for (void* pointer : {first, second}) EXPECT_EQ(cudaFree(pointer), kSuccess);
  EXPECT_EQ(cudaMalloc(&first, std::size_t{2} << 30), kMemoryAllocation) << "more than it has";
  EXPECT_EQ(fakegpu_set_faults("memset:1:delay:20000"), 0);
  std::uint32_t* buffer = make_buffer(1);
  EXPECT_EQ(cudaMemsetAsync(buffer, 1, 4, nullptr), kSuccess);
  EXPECT_EQ(cudaEventDestroy(event), kSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), kNotReady);
  EXPECT_EQ(cudaFree(buffer), kSuccess);
}

TEST_F(FakeGpuTest, MisuseIsNoticed) {
  const EventHandle event = make_event();
  EXPECT_EQ(cudaEventDestroy(event), kSuccess);
  EXPECT_EQ(cudaEventRecord(event, nullptr), 400);
  EXPECT_EQ(cudaFree(this), kInvalidValue);
  EXPECT_EQ(fakegpu_misuses(), 2);
  fakegpu_forgive_misuses();
}

// The last one: the process cannot use the device after it.
TEST_F(FakeGpuTest, ZAccessOutsideOfABufferBreaksTheDevice) {
  std::uint32_t* buffer = make_buffer(10);
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  EXPECT_EQ(cudaMemsetAsync(buffer + 5, 1, 24, stream), kSuccess) << "known when it runs";
  cudaEventRecord(event, stream);
  EXPECT_EQ(cudaEventSynchronize(event), 700);
  EXPECT_EQ(cudaStreamSynchronize(stream), 700);
  EXPECT_EQ(cudaGetLastError(), 700);
  EXPECT_EQ(cudaGetLastError(), 700) << "sticky";
  EXPECT_EQ(cudaEventDestroy(event), 700);
  EXPECT_EQ(cudaStreamDestroy(stream), 700);
  EXPECT_EQ(cudaFree(buffer), 700);
}

}  // namespace
}  // namespace kolo::internal::cuda
