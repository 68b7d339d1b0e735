/* The input of bindgen: the shim's interface. libdpdk's flags include rte_config.h. */
#include "shim.h"
