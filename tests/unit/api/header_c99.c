/* kolo.h in strict C99: it compiles, and its macros and inline function can be used. */
#include "kolo/kolo.h"

static void on_done(kolo_status status, const char* text, void* user) {
  (void)text;
  *(int*)user = (int)status;
}

int kolo_header_c99(kolo_context** context);
int kolo_header_c99(kolo_context** context) {
  int seen = 0;
  kolo_options options = KOLO_OPTIONS_INIT;
  kolo_request request = KOLO_REQUEST_NULL;
  options.callback = on_done;
  options.user = &seen;
  return options.struct_size == sizeof options && options.prescale == 1.0 &&
         options.postscale == 1.0 && options.timeout_ms == 0 && request == 0 &&
         sizeof(kolo_dtype) == 4 && kolo_init(NULL, context) == KOLO_OK;
}
