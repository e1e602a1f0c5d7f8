// A mesh of channels in memory.
#pragma once

#include <memory>
#include <utility>

#include "tests/conformance/mesh.h"
#include "transport/inproc/inproc_channel.h"

namespace kolo::internal {

inline Mesh inproc_mesh(int size, const InprocFaults& faults) {
  Mesh mesh;
  const auto network = std::make_shared<InprocNetwork>(size, 1, faults);
  mesh.owner = network;
  for (int rank = 0; rank < size; ++rank) {
    mesh.rows.push_back(std::move(network->channels(rank)[0]));
  }
  return mesh;
}

}  // namespace kolo::internal
