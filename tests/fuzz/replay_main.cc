// Runs a fuzz target over every file of the folders named, and over small mutations of each: what
// a compiler without libFuzzer can do. Exits 1 when there was nothing to run.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int kMutations = 300;
constexpr std::uint64_t kSeed = 1;

void run(const Bytes& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

void run_mutations(Bytes bytes, std::mt19937_64& random) {
  for (int i = 0; i < kMutations; ++i) {
    Bytes changed = bytes;
    if (!changed.empty()) {
      changed[random() % changed.size()] ^= static_cast<std::uint8_t>(1U << (random() % 8));
      if (random() % 4 == 0) changed.resize(random() % changed.size());
    }
    if (random() % 4 == 0) {
      changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(random() % (changed.size() + 1)),
                     static_cast<std::uint8_t>(random()));
    }
    run(changed);
  }
}

}  // namespace

int main(int count, char** folders) {
  std::mt19937_64 random(kSeed);
  int files = 0;
  for (int i = 1; i < count; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const Bytes bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      run(bytes);
      run_mutations(bytes, random);
      ++files;
    }
  }
  std::printf("%d inputs, %d mutations of each, seed %llu\n", files, kMutations,
              static_cast<unsigned long long>(kSeed));
  return files > 0 ? 0 : 1;
}
