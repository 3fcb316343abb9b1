import './base.css';
import '../../jupyter_ddl/views/live/live.css';
