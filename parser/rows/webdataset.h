/* WebDataset: a tar archive whose members are grouped into samples. Sources: POSIX ustar and pax (pax(1)), GNU tar's
 * extensions, as Python's tarfile and GNU tar write and read them; samples as webdataset 1.0 groups them
 * (webdataset/tariterators.py: tar_file_iterator, base_plus_ext, group_by_keys).
 *
 * A row is a sample: consecutive members with the same key, which is the path up to the first dot of its last component
 * (images/0001.seg.png: images/0001). Where that component begins with a dot, the key is the folder with its slash, if
 * the folder's own name has no dot, as in webdataset. Members that belong to no sample, and end none:
 *   - all but regular files: directories, links, devices, types that are not known;
 *   - files whose path has no key;
 *   - metadata: files whose first component begins and ends with "__" and has four characters or more.
 * A row's bytes are the archive from the first header of its first member (a header of pax or a long name of GNU
 * belongs to the member that follows it) to the end of the data of its last member, with the padding to 512 bytes. So
 * rows one after another, and 1,024 zero bytes after them, are a tar archive. Members of no sample within a row are
 * part of it. Two members of one sample with the same extension are answered; webdataset refuses them.
 *
 * The archive ends with a block of zeros, after which nothing is read, or with the file.
 *
 * Refused, with the position: an empty file; a header that is not all there or whose checksum does not fit; sizes that
 * are no number, or pass the file's end with the padding; sparse members of any kind; data in a directory, a link, a
 * device or a pipe, which readers disagree about; pax records that are malformed, or a header of pax or GNU name of
 * more than TD_TAR_EXTENSION_BYTES; paths that are empty, hold a NUL or have more than TD_TAR_PATH_BYTES; two headers
 * that give one member a path or a size, or one without a member after it; a global header of pax that sets path, size
 * or sparse members for all that follow. Compressed archives (.tar.gz) are not of this format. */
#ifndef TD_PARSER_ROWS_WEBDATASET_H
#define TD_PARSER_ROWS_WEBDATASET_H

#include "core/text.h"
#include "parser/rows/index/row_format.h"

enum { TD_TAR_PATH_BYTES = 16383, TD_TAR_EXTENSION_BYTES = 1024 * 1024 };

/* Returns the length of the key at the path's beginning; 0: the path has none, or is metadata. */
size_t td_webdataset_key(struct td_text path);

extern const struct td_row_format td_row_format_webdataset;

#endif
