#include "core/device_stall.h"

#include <cstdio>

namespace kolo::internal {
namespace {

std::string seconds_text(Nanos duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

std::string stall_text(const DeviceStall& stall) {
  const std::string age = seconds_text(stall.age);
  std::string text = "stall: " + stall.unit;
  if (stall.is_launched) {
    text += " was launched on CUDA device " + std::to_string(stall.device) + " " + age +
            " ago and does not end there";
  } else {
    text += " has waited " + age + " for its launch on CUDA device " +
            std::to_string(stall.device) +
            ", as a call of CUDA or NCCL before it, or in it, does " + "not come back";
  }
  if (stall.operations > 1) {
    text += ", nor do " + std::to_string(stall.operations - 1) + " more behind it";
  }
  if (stall.is_given_up) {
    return text +
           ". It has been given up, but the device may still use its memory: end what "
           "runs there, or this process";
  }
  if (!stall.is_launched) {
    return text + ". NCCL_DEBUG=INFO tells which; kolo_abort() ends what is not launched yet";
  }
  return text +
         ". A kernel before it on options.stream does not end, or a rank is stuck in it: "
         "see nvidia-smi, and NCCL_DEBUG=INFO of all ranks; kolo_abort() ends it";
}

Status left_behind(const Status& why, Nanos patience) {
  return {why.code(), why.text() + ". A call of CUDA or NCCL for it has not come back for " +
                          seconds_text(patience) +
                          " and may still use its memory: leave that alone, and end this process"};
}

}  // namespace kolo::internal
