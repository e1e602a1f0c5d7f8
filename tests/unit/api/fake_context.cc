#include "tests/unit/api/fake_context.h"

#include <memory>
#include <utility>

namespace kolo::internal {

std::string mpi_module_found() { return ""; }
std::string gpus_found() { return "\"cuda\":{\"found\":false},\"nccl\":{\"found\":false}"; }

Result<std::unique_ptr<Context>> Context::create(const Config&, Logger::Sink) {
  if (!script->create_status) return script->create_status;
  return std::unique_ptr<Context>(std::make_unique<FakeContext>());
}

}  // namespace kolo::internal
