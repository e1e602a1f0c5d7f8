#include "core/device_record.h"

#include <algorithm>
#include <cstring>

#include "ops/nccl/library.h"

namespace kolo::internal {
namespace {

constexpr int kSharesDevices = 23000;

bool is_text(const char* text, std::size_t room) { return std::memchr(text, 0, room) != nullptr; }

std::string rank_text(const std::vector<int>& ranks, std::size_t place) {
  return "rank " + std::to_string(ranks[place]);
}

bool share_a_device(const DeviceRecord& a, const DeviceRecord& b) {
  return a.host == b.host && std::strncmp(a.bus_id, b.bus_id, sizeof a.bus_id) == 0;
}

}  // namespace

std::string why_not_by_nccl(std::span<const DeviceRecord> records, const std::vector<int>& ranks) {
  for (std::size_t place = 0; place < records.size(); ++place) {
    const DeviceRecord& record = records[place];
    if (record.can != 0) continue;
    return rank_text(ranks, place) + ": " +
           (is_text(record.why, sizeof record.why) ? record.why : "it cannot");
  }
  for (std::size_t place = 1; place < records.size(); ++place) {
    if (records[place].nccl_version == records[0].nccl_version) continue;
    return rank_text(ranks, 0) + " has NCCL " + nccl::version_text(records[0].nccl_version) +
           " and " + rank_text(ranks, place) + " has " +
           nccl::version_text(records[place].nccl_version) + ". Give all the same library";
  }
  for (std::size_t a = 0; a < records.size(); ++a) {
    for (std::size_t b = a + 1; b < records.size(); ++b) {
      if (!share_a_device(records[a], records[b])) continue;
      const bool may = records[a].may_share != 0 && records[b].may_share != 0 &&
                       records[a].nccl_version >= kSharesDevices;
      if (may) continue;
      return rank_text(ranks, a) + " and " + rank_text(ranks, b) +
             " are on one GPU, which NCCL does not serve. Give each rank its own, as by "
             "cudaSetDevice(kolo_local_rank(context))";
    }
  }
  return {};
}

bool packs(std::span<const DeviceRecord> records) {
  return std::all_of(records.begin(), records.end(),
                     [](const DeviceRecord& record) { return record.kernels != 0; });
}

}  // namespace kolo::internal
