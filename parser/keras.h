/* Keras 3 models, .keras: a zip archive of config.json, metadata.json and a stored model.weights.h5. Source:
 * keras/src/saving/saving_lib.py. */
#ifndef TD_PARSER_KERAS_H
#define TD_PARSER_KERAS_H

#include "parser/format/format.h"

/* "keras": lists the tensors and the metadata of model.weights.h5 (hdf5.h). Before that metadata come the members of
 * metadata.json: keras_version, date_saved. config.json, the model's architecture, is not read. */
extern const struct td_format td_format_keras;

#endif
