#include "core/device_road.h"

#include <algorithm>
#include <cstring>

#include "ops/collectives.h"

namespace kolo::internal {
namespace {

template <std::size_t kRoom>
void put(const std::string& text, char (&out)[kRoom]) {
  std::memset(out, 0, kRoom);
  std::memcpy(out, text.data(), std::min(text.size(), kRoom - 1));
}

}  // namespace

Result<cuda::EventRef> DeviceRoad::Open::launch() {
  const Result<cuda::Device*> opened = thread_.device(road_.device);
  if (!opened) {
    road_.communicator->doom(opened.status());
    return opened.status();
  }
  KOLO_RETURN_IF_ERROR(road_.communicator->open(road_.id, road_.size, road_.place));
  return cuda::EventRef();
}

Status DeviceSetup::Ask::look() {
  const Result<cuda::Device*> device = gpus_.thread().device(device_);
  if (!device) return device.status();
  put((*device)->bus_id(), record_.bus_id);
  record_.kernels = (*device)->kernels() != nullptr ? 1 : 0;
  if (!rank_.by_nccl) return {StatusCode::kUnsupported, "the option cuda is staged"};
  const auto& library = gpus_.library();
  if (!library) return library.status();
  record_.nccl_version = (*library)->version();
  if (!is_first_) return Status::ok();
  const nccl::Error error = (*library)->ncclGetUniqueId(&record_.id);
  if (error == nccl::kSuccess) return Status::ok();
  return {StatusCode::kNcclError, std::string("ncclGetUniqueId: ") +
                                      (*library)->ncclGetErrorString(error) + ", " +
                                      (*library)->ncclGetLastError(nullptr)};
}

Result<cuda::EventRef> DeviceSetup::Ask::launch() {
  record_ = {};
  record_.host = rank_.host;
  record_.may_share = rank_.may_share ? 1 : 0;
  const Status status = look();
  record_.can = status ? 1 : 0;
  put(status.text(), record_.why);
  return cuda::EventRef();
}

void DeviceSetup::start(Collectives& collectives, std::uint32_t sequence, const DeviceRoad& road) {
  begin(collectives, sequence);
  gathered_ = false;
  records_.assign(static_cast<std::size_t>(road.size), {});
  sizes_.assign(records_.size(), sizeof(DeviceRecord));
  ask_.prepare(road.device, road.place == 0);
  gpus_.thread().post(ask_);
}

void DeviceSetup::step() {
  if (gathered_) return complete();
  if (!ask_.is_idle()) return idle();
  gathered_ = true;
  run(collectives().start_allgather(sequence(), &ask_.record(), records_.data(), sizes_));
}

}  // namespace kolo::internal
