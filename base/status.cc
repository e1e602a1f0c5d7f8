#include "base/status.h"

namespace kolo::internal {

const char* status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kMismatch: return "mismatch";
    case StatusCode::kDuplicateName: return "duplicate name";
    case StatusCode::kNotInitialized: return "not initialised";
    case StatusCode::kWouldDeadlock: return "would deadlock";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kPeerLost: return "peer lost";
    case StatusCode::kTimedOut: return "timed out";
    case StatusCode::kResource: return "resource";
    case StatusCode::kInternal: return "internal error";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kInProgress: return "in progress";
    case StatusCode::kCudaError: return "CUDA error";
    case StatusCode::kNcclError: return "NCCL error";
  }
  return "unknown status";
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  return std::string(status_code_name(code_)) + ": " + text_;
}

}  // namespace kolo::internal
