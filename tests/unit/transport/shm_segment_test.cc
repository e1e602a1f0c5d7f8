#include "transport/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace kolo::internal {
namespace {

constexpr std::size_t kBytes = 1 << 20;

// The kernel's flags of the mapping that starts there.
std::string flags_of(const void* begin) {
  std::ifstream maps("/proc/self/smaps");
  std::ostringstream start;
  start << std::hex << reinterpret_cast<std::uintptr_t>(begin) << '-';
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(start.str(), 0) == 0) found = true;
    if (found && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

TEST(ShmSegment, CannotBeWrittenOrResizedByOthers) {
  Result<Segment> segment = Segment::create(0, kBytes);
  ASSERT_TRUE(segment.is_ok()) << segment.status().to_string();
  const int memory = segment->memory.get();
  EXPECT_NE(::ftruncate(memory, 4096), 0);
  EXPECT_NE(::ftruncate(memory, 2 * kBytes), 0);
  EXPECT_NE(::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no more seals";
  EXPECT_NE(::fcntl(memory, F_GETFD) & FD_CLOEXEC, 0);
  if ((::fcntl(memory, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0) {
    GTEST_SKIP() << "this kernel cannot forbid later writers (Linux < 5.1)";
  }
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
  EXPECT_LT(::pwrite(memory, "x", 1, 0), 0);
  segment->mapping.begin()[5000] = std::byte{3};  // its owner can
  Result<Mapping> peer = map_peer(memory, 0, kBytes, segment->mapping.header().nonce);
  ASSERT_TRUE(peer.is_ok()) << peer.status().to_string();
  EXPECT_EQ(peer->begin()[5000], std::byte{3});
  EXPECT_NE(::mprotect(peer->begin(), 4096, PROT_READ | PROT_WRITE), 0);
}

TEST(ShmSegment, IsSparseAndNeitherDumpedNorInherited) {
  Result<Segment> segment = Segment::create(0, std::size_t{1} << 36);
  ASSERT_TRUE(segment.is_ok()) << segment.status().to_string();
  struct stat info {};
  ASSERT_EQ(::fstat(segment->memory.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, static_cast<long>(Window::kHeaderBytes));
  const std::string flags = flags_of(segment->mapping.begin());
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;  // not dumped
  EXPECT_NE(flags.find(" dc "), std::string::npos) << flags;  // not copied at fork
  ASSERT_TRUE(commit_memory(segment->memory.get(), 1 << 20, 40 << 20).is_ok());
  ASSERT_EQ(::fstat(segment->memory.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, static_cast<long>(Window::kHeaderBytes) + (40 << 20));
}

TEST(ShmSegment, OnlyTheRightMemoryIsMapped) {
  Result<Segment> segment = Segment::create(3, kBytes);
  ASSERT_TRUE(segment.is_ok());
  const Digest nonce = segment->mapping.header().nonce;
  EXPECT_EQ(map_peer(segment->memory.get(), 3, kBytes, random_digest()).status().code(),
            StatusCode::kResource);
  EXPECT_EQ(map_peer(segment->memory.get(), 3, 2 * kBytes, nonce).status().code(),
            StatusCode::kResource);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  const Status status = map_peer(unsealed.get(), 3, kBytes, Digest{}).status();
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_NE(status.text().find("local rank 3"), std::string::npos) << status.text();
  EXPECT_TRUE(map_peer(segment->memory.get(), 3, kBytes, nonce).is_ok());
}

TEST(ShmSegment, CommitBeyondTheEndFails) {
  Result<Segment> segment = Segment::create(0, kBytes);
  ASSERT_TRUE(segment.is_ok());
  const Status status = commit_memory(segment->memory.get(), 0, kBytes + 4096);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_NE(status.text().find(std::to_string(kBytes + 4096)), std::string::npos);
}

}  // namespace
}  // namespace kolo::internal
