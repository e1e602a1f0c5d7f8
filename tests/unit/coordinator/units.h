// Short ways to write units in tests of the coordinator. Pure functions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/frame.h"

namespace kolo::internal {

using RunItem = Run;  // inside a test, Run is a function of GoogleTest

inline TensorSpec spec_of(std::string name, std::vector<std::int64_t> shape,
                          DataType dtype = DataType::kFloat32, OpKind kind = OpKind::kAllreduce) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.kind = kind;
  spec.dtype = dtype;
  spec.count = 1;
  for (const std::int64_t dim : shape) spec.count *= static_cast<std::uint64_t>(dim);
  spec.shape = std::move(shape);
  return spec;
}

inline Unit single(TensorSpec spec, std::uint32_t set = 0) {
  Unit unit;
  unit.key = {set, spec.name};
  unit.tensors = {std::move(spec)};
  return unit;
}

inline UnitPtr allreduce(const std::string& name, std::uint32_t set = 0, std::int64_t count = 4) {
  return std::make_shared<const Unit>(single(spec_of(name, {count}), set));
}

inline UnitPtr group(const std::string& name, std::vector<TensorSpec> members) {
  Unit unit;
  unit.key = {0, name};
  unit.group = true;
  unit.tensors = std::move(members);
  return std::make_shared<const Unit>(std::move(unit));
}

inline Item failure_of(UnitKey key, std::vector<int> ranks, Status status) {
  Failure failure;
  failure.key = std::move(key);
  failure.ranks = std::move(ranks);
  failure.status = std::move(status);
  return failure;
}

inline UnitPtr share(Unit unit) { return std::make_shared<const Unit>(std::move(unit)); }

}  // namespace kolo::internal
