/* What bindgen reads: the shim's face. `-include rte_config.h` comes with libdpdk's flags. */
#include "shim.h"
