#include <cstdio>
#include <kolo/kolo.hpp>
#include <vector>

int main() {
  try {
    kolo::Context context;
    std::vector<double> values{1, 2, 3};
    kolo::Request request =
        context.allreduce_async(values.data(), values.data(), values.size(), kolo::Op::avg);
    request.wait();
    std::printf("C++: rank %d of %d, %g\n", context.rank(), context.size(), values[2]);
    return values[2] == 3 ? 0 : 1;
  } catch (const kolo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
