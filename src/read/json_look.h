/* JSON look: telling dumps of numbers from all the other JSON that lies beside models. */
#ifndef TS_READ_JSON_LOOK_H
#define TS_READ_JSON_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "read/number_scan.h"

/* The first bytes are JSON, cut off or not, in which lists of numbers prevail, and not a file known for something
 * else. name is the file's. */
bool ts_json_is_dump(const char *text, size_t size, const char *name);

/* The current token, a string, is one of the words that stand for what JSON has no numbers for: "nan", "-inf". */
bool ts_json_special_number(const struct ts_json *json, struct ts_number *number);
/* The list that is the current token begins with an object. */
bool ts_json_holds_objects(const struct ts_json *json);

#endif
