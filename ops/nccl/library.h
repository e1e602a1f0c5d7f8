// Library: NCCL in this process, found when it is first needed. Nothing of it is linked, and it is
// never closed. It does not change after load(): any threads may share it. Each of its functions is
// what NCCL says of it, under NCCL's own name; what came after 2.18 may be null.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/options.h"
#include "base/status.h"
#include "ops/nccl/abi.h"

namespace kolo::internal::nccl {

class Library : public Functions {
 public:
  // The library of the option `nccl_path`; else the one that this process has loaded; else where
  // the system looks, and CUDA_HOME's. UNSUPPORTED (none found, too old, the option `cuda` is off),
  // with the cure.
  static Result<std::unique_ptr<const Library>> load(const Config& config);

  // OK for kSuccess; else what NCCL says, with its last words on `comm` (null: of this thread):
  // INVALID_ARGUMENT for misuse, NCCL_ERROR for the rest. `what` was
  // tried, e.g. "ncclAllReduce of gradients".
  [[nodiscard]] Status status_of(Error error, std::string_view what,
                                 CommHandle comm = nullptr) const;

  [[nodiscard]] const std::string& path() const { return path_; }  // of the library's file
  [[nodiscard]] int version() const { return version_; }           // 22809 is 2.28.9

 private:
  Library() = default;

  std::string path_;
  int version_ = 0;
};

// "2.28.9" for 22809.
[[nodiscard]] std::string version_text(int version);

}  // namespace kolo::internal::nccl
