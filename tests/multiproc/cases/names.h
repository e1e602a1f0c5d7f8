// Names that writers of text files get wrong; known to case_ranks and to the test that reads them.
#pragma once

#include <string>
#include <vector>

namespace kolo::cases {

inline std::string bytes_from(int first, int last, std::size_t length) {
  std::string text;
  while (text.size() < length) {
    for (int byte = first; byte <= last && text.size() < length; ++byte) {
      text += static_cast<char>(static_cast<unsigned char>(byte));
    }
  }
  return text;
}

inline std::vector<std::string> strange_names() {
  return {"\"quoted\" and 'so'",
          "back\\slash\\\\\"",
          "new\nline\r\n",
          "tab\there\t",
          bytes_from(0x01, 0x1f, 31),
          "x" + bytes_from(0x7f, 0xff, 129),
          "y" + bytes_from(0x01, 0xff, 4095),
          "</script>{}[],\xc3\x28 \\u0041 \xed\xa0\x80"};
}

}  // namespace kolo::cases
