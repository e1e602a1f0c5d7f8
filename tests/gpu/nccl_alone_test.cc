// NCCL as kolo's own declarations have it, on one device: a communicator of one rank, and each of
// the functions that kolo calls. On a real device this is what tries those declarations.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/nccl/library.h"
#include "tests/gpu/gpu.h"

namespace {

namespace nccl = kolo::internal::nccl;
using gpu_test::DeviceArray;
using gpu_test::Stream;

constexpr std::size_t kCount = 100'003;

std::vector<float> numbers(int seed) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 4099) + seed);
  }
  return values;
}

class NcclAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    GPU_OR_SKIP();
    kolo::internal::Config config;
    std::vector<std::string> unknown;
    ASSERT_TRUE(config.load_environment(unknown).is_ok());
    auto library = nccl::Library::load(config);
    if (!library) GTEST_SKIP() << "no NCCL: " << library.status().text();
    nccl_ = *std::move(library);
    gpu_test::check(gpu_test::runtime()->cudaSetDevice(0), "cudaSetDevice");
    nccl::UniqueId id;
    must(nccl_->ncclGetUniqueId(&id), "ncclGetUniqueId");
    nccl::CommConfig options;
    options.blocking = 1;
    must(nccl_->ncclCommInitRankConfig(&comm_, 1, id, 0, &options), "ncclCommInitRankConfig");
    ASSERT_NE(comm_, nullptr);
    stream_ = std::make_unique<Stream>(0);
  }

  void TearDown() override {
    stream_.reset();
    if (comm_ == nullptr) return;
    must(nccl_->ncclCommFinalize(comm_), "ncclCommFinalize");
    must(nccl_->ncclCommDestroy(comm_), "ncclCommDestroy");
  }

  void must(nccl::Error error, const char* what) const {
    EXPECT_EQ(error, nccl::kSuccess) << nccl_->status_of(error, what, comm_).text();
  }
  [[nodiscard]] gpu_test::cuda::StreamHandle stream() const { return stream_->get(); }

  std::unique_ptr<const nccl::Library> nccl_;
  nccl::CommHandle comm_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

TEST_F(NcclAlone, SaysWhatItIs) {
  int size = 0;
  must(nccl_->ncclCommCount(comm_, &size), "ncclCommCount");
  EXPECT_EQ(size, 1);
  nccl::Error error = nccl::kInternalError;
  must(nccl_->ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
  EXPECT_EQ(error, nccl::kSuccess);
  EXPECT_GE(nccl_->version(), nccl::kOldestLibrary);
}

TEST_F(NcclAlone, ReductionsGiveTheInput) {
  const std::vector<float> input = numbers(1);
  DeviceArray<float> in(0, input);
  for (const nccl::ReduceOpNumber op :
       {nccl::kSum, nccl::kProd, nccl::kMax, nccl::kMin, nccl::kAvg}) {
    DeviceArray<float> out(0, kCount);
    must(nccl_->ncclAllReduce(in.get(), out.get(), kCount, nccl::kFloat32, op, comm_, stream()),
         "ncclAllReduce");
    EXPECT_EQ(out.read(stream()), input) << "all-reduce by operator " << op;
    DeviceArray<float> at_root(0, kCount);
    must(nccl_->ncclReduce(in.get(), at_root.get(), kCount, nccl::kFloat32, op, 0, comm_, stream()),
         "ncclReduce");
    EXPECT_EQ(at_root.read(stream()), input) << "reduce by operator " << op;
    DeviceArray<float> part(0, kCount);
    must(
        nccl_->ncclReduceScatter(in.get(), part.get(), kCount, nccl::kFloat32, op, comm_, stream()),
        "ncclReduceScatter");
    EXPECT_EQ(part.read(stream()), input) << "reduce-scatter by operator " << op;
  }
}

TEST_F(NcclAlone, MovesGiveTheInput) {
  const std::vector<float> input = numbers(2);
  DeviceArray<float> in(0, input);
  DeviceArray<float> out(0, kCount);
  must(nccl_->ncclBroadcast(in.get(), out.get(), kCount, nccl::kFloat32, 0, comm_, stream()),
       "ncclBroadcast");
  EXPECT_EQ(out.read(stream()), input);
  DeviceArray<float> gathered(0, kCount);
  must(nccl_->ncclAllGather(in.get(), gathered.get(), kCount, nccl::kFloat32, comm_, stream()),
       "ncclAllGather");
  EXPECT_EQ(gathered.read(stream()), input);
  DeviceArray<float> sent(0, kCount);
  must(nccl_->ncclGroupStart(), "ncclGroupStart");
  must(nccl_->ncclSend(in.get(), kCount, nccl::kFloat32, 0, comm_, stream()), "ncclSend");
  must(nccl_->ncclRecv(sent.get(), kCount, nccl::kFloat32, 0, comm_, stream()), "ncclRecv");
  must(nccl_->ncclGroupEnd(), "ncclGroupEnd");
  EXPECT_EQ(sent.read(stream()), input);
}

TEST_F(NcclAlone, ManyInOneGroup) {
  constexpr std::size_t kTensors = 500;
  const std::vector<float> input = numbers(3);
  DeviceArray<float> in(0, input);
  DeviceArray<float> out(0, std::vector<float>(kCount, 0.0F));
  must(nccl_->ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < kTensors; ++i) {
    must(nccl_->ncclAllReduce(in.get() + i * 200, out.get() + i * 200, 200, nccl::kFloat32,
                              nccl::kSum, comm_, stream()),
         "ncclAllReduce");
  }
  must(nccl_->ncclGroupEnd(), "ncclGroupEnd");
  std::vector<float> expected = input;
  std::fill(expected.begin() + kTensors * 200, expected.end(), 0.0F);
  EXPECT_EQ(out.read(stream()), expected);
}

TEST_F(NcclAlone, ScalesBeforeItAdds) {
  DeviceArray<float> data(0, std::vector<float>(kCount, 3.0F));
  float factor = 0.5F;
  nccl::ReduceOpNumber op = 0;
  must(nccl_->ncclRedOpCreatePreMulSum(&op, &factor, nccl::kFloat32, nccl::kScalarOnHost, comm_),
       "ncclRedOpCreatePreMulSum");
  must(nccl_->ncclAllReduce(data.get(), data.get(), kCount, nccl::kFloat32, op, comm_, stream()),
       "ncclAllReduce");
  must(nccl_->ncclRedOpDestroy(op, comm_), "ncclRedOpDestroy");
  EXPECT_EQ(data.read(stream()), std::vector<float>(kCount, 1.5F));
}

TEST_F(NcclAlone, MemoryOfItsOwn) {
  if (nccl_->ncclMemAlloc == nullptr || nccl_->ncclCommRegister == nullptr) {
    GTEST_SKIP() << "NCCL " << nccl::version_text(nccl_->version()) << " has no ncclMemAlloc";
  }
  void* memory = nullptr;
  must(nccl_->ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
  void* registration = nullptr;
  must(nccl_->ncclCommRegister(comm_, memory, 4096, &registration), "ncclCommRegister");
  gpu_test::check(gpu_test::runtime()->cudaMemsetAsync(memory, 1, 4096, stream()), "memset");
  must(nccl_->ncclAllReduce(memory, memory, 4096, nccl::kInt8, nccl::kSum, comm_, stream()),
       "ncclAllReduce");
  std::vector<char> back(4096);
  gpu_test::check(gpu_test::runtime()->cudaMemcpyAsync(back.data(), memory, back.size(),
                                                       gpu_test::cuda::kCopyDeviceToHost, stream()),
                  "copy");
  stream_->synchronize();
  EXPECT_EQ(back, std::vector<char>(4096, 1));
  must(nccl_->ncclCommDeregister(comm_, registration), "ncclCommDeregister");
  must(nccl_->ncclMemFree(memory), "ncclMemFree");
}

TEST_F(NcclAlone, AbortEndsACommunicatorWithQueuedWork) {
  DeviceArray<float> data(0, numbers(4));
  for (int i = 0; i < 200; ++i) {
    must(nccl_->ncclAllReduce(data.get(), data.get(), kCount, nccl::kFloat32, nccl::kSum, comm_,
                              stream()),
         "ncclAllReduce");
  }
  must(nccl_->ncclCommAbort(comm_), "ncclCommAbort");
  comm_ = nullptr;
  stream_->synchronize();
}

}  // namespace
