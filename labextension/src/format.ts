/** Numbers as people read them: the live view's own module. */

export {
  age,
  bytes,
  clock,
  count,
  counted,
  money,
  number,
  percent,
  score
} from '../../jupyter_ddl/views/live/format.js';
